// CopyBox: boxes of up to eight dimensions, element by element. CopyRuns: runs of all short lengths, byte by byte.
#include "stepnet/operators/dtypes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace stepnet {
namespace {

// Steps of an array that holds the dimensions in the order `order`, innermost last, with gaps behind some of them.
std::vector<std::int64_t> StepsOf(const std::vector<std::int64_t>& sizes, const std::vector<int>& order,
                                  std::mt19937& random, std::int64_t* elements) {
  std::vector<std::int64_t> steps(sizes.size());
  *elements = 1;
  for (size_t i = order.size(); i-- > 0;) {
    steps[order[i]] = *elements;
    *elements *= sizes[order[i]] + (random() % 4 == 0 ? 1 : 0);
  }
  return steps;
}

TEST(CopyBox, CopiesEachElementAndTouchesNothingElse) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const int rank = static_cast<int>(random() % 9);
    std::vector<std::int64_t> sizes;
    for (int d = 0; d < rank; ++d) sizes.push_back(random() % 16 == 0 ? 0 : 1 + random() % 3);
    std::vector<int> order;
    for (int d = 0; d < rank; ++d) order.push_back(d);
    std::int64_t to_elements = 0, from_elements = 0;
    const std::vector<std::int64_t> to_steps = StepsOf(sizes, order, random, &to_elements);
    if (random() % 2 == 0) std::ranges::shuffle(order, random);
    std::vector<std::int64_t> from_steps = StepsOf(sizes, order, random, &from_elements);
    if (rank > 0 && random() % 4 == 0) from_steps[random() % rank] = 0;  // repeated

    std::vector<BoxDim> dims;
    for (int d = 0; d < rank; ++d) dims.push_back({sizes[d], from_steps[d], to_steps[d]});
    std::vector<std::string> from, to(to_elements, "untouched"), expected = to;
    for (std::int64_t i = 0; i < from_elements; ++i) from.push_back(std::to_string(i));
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, from_at = 0, to_at = 0;
      for (int d = rank; d-- > 0; rest /= sizes[d]) {
        from_at += rest % sizes[d] * from_steps[d];
        to_at += rest % sizes[d] * to_steps[d];
      }
      expected[to_at] = from[from_at];
    }
    CopyBox(DType::kString, dims, reinterpret_cast<const std::byte*>(from.data()),
            reinterpret_cast<std::byte*>(to.data()));
    ASSERT_EQ(to, expected) << "trial " << trial;
    std::vector<std::int32_t> from_numbers, to_numbers(to_elements, -1), expected_numbers;
    for (std::int32_t i = 0; i < from_elements; ++i) from_numbers.push_back(i);
    for (const std::string& text : expected) expected_numbers.push_back(text == "untouched" ? -1 : std::stoi(text));
    CopyBox(DType::kInt32, dims, reinterpret_cast<const std::byte*>(from_numbers.data()),
            reinterpret_cast<std::byte*>(to_numbers.data()));
    ASSERT_EQ(to_numbers, expected_numbers) << "trial " << trial;
  }
}

TEST(CopyRuns, CopiesEachByteAndTouchesNothingElse) {
  constexpr std::int64_t kRows = 3, kGap = 2;
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat, DType::kDouble}) {
    const std::int64_t bytes = DTypeBytes(dtype);
    for (std::int64_t length = 0; length * bytes <= 320; ++length) {
      const std::int64_t from_step = length + kGap, to_step = length + 2 * kGap;
      std::vector<std::byte> from(kRows * from_step * bytes), to(kRows * to_step * bytes, std::byte{255}), want = to;
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i % 251);
      for (std::int64_t row = 0; row < kRows; ++row) {
        std::copy_n(&from[row * from_step * bytes], length * bytes, &want[row * to_step * bytes]);
      }
      CopyRuns(dtype, from.data(), from_step, to.data(), to_step, length, kRows);
      ASSERT_EQ(to, want) << length << " elements of " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace stepnet
