// Values of rows in an array, and rows between memory and blocks: each byte where it belongs, and none beyond.
#include "stepnet/core/regions/region_copies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "stepnet/tests/core/for_each_target.h"

namespace stepnet {
namespace {

constexpr int kGuard = 64;  // elements beyond an array, a vector and more

template <typename T>
T Number(std::int64_t i) {
  return static_cast<T>(i * 37 + 1);
}

template <typename T>
void ExpectSpread(std::int64_t rows, std::int64_t n) {
  std::vector<T> values(static_cast<size_t>(rows)), out(static_cast<size_t>(rows * n + kGuard), T{99});
  for (std::int64_t row = 0; row < rows; ++row) values[row] = Number<T>(row);
  Spread(values.data(), out.data(), sizeof(T), rows, n);
  for (std::int64_t i = 0; i < std::ssize(out); ++i) {
    ASSERT_EQ(out[i], i < rows * n ? values[i / n] : T{99}) << rows << " rows of " << n << ", element " << i;
  }
}

TEST(RegionCopies, SpreadsOneValueOverEachRow) {
  ForEachTarget([] {
    for (std::int64_t rows = 0; rows < 20; ++rows) {
      for (std::int64_t n = 0; n < 70; ++n) {
        ExpectSpread<std::int8_t>(rows, n);
        ExpectSpread<std::int16_t>(rows, n);
        ExpectSpread<std::int32_t>(rows, n);
        ExpectSpread<std::int64_t>(rows, n);
      }
    }
  });
}

template <typename T>
void ExpectCopied(const BlockRows& rows) {
  const std::int64_t row_stride = rows.row_stride / static_cast<std::int64_t>(sizeof(T));
  std::vector<T> memory(2000), block(static_cast<size_t>(rows.rows * rows.columns + kGuard), T{99});
  for (std::int64_t i = 0; i < std::ssize(memory); ++i) memory[i] = Number<T>(i);
  const auto at = [&](std::int64_t i) { return i / rows.columns * row_stride + i % rows.columns * rows.stride; };
  LoadRows(reinterpret_cast<const char*>(memory.data()), reinterpret_cast<char*>(block.data()), rows);
  for (std::int64_t i = 0; i < std::ssize(block); ++i) {
    ASSERT_EQ(block[i], i < rows.rows * rows.columns ? memory[at(i)] : T{99}) << i;
  }
  if (rows.row_stride == 0) return;  // several elements would be written to one place
  std::vector<T> stored(memory.size(), T{99}), wanted(stored);
  for (std::int64_t i = 0; i < rows.rows * rows.columns; ++i) wanted[at(i)] = block[i];
  StoreRows(reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(stored.data()), rows);
  ASSERT_EQ(stored, wanted);
}

TEST(RegionCopies, LoadsAndStoresRowsOfAnySteps) {
  ForEachTarget([] {
    for (const std::int64_t columns : {1, 3, 4, 8, 13, 16, 33}) {
      for (const std::int64_t stride : {1, 2}) {
        for (const std::int64_t beyond : {0, 5}) {  // of a row in memory
          for (const bool repeats : {false, true}) {
            const std::int64_t row_stride = repeats ? 0 : columns * stride + beyond;
            SCOPED_TRACE(testing::Message()
                         << columns << " columns, stride " << stride << ", from row to row " << row_stride);
            const BlockRows rows{.rows = 7, .columns = columns, .stride = stride};
            const auto of = [&](std::int64_t bytes) {
              BlockRows of_bytes = rows;
              of_bytes.bytes = bytes;
              of_bytes.row_stride = row_stride * bytes;
              return of_bytes;
            };
            ExpectCopied<std::int16_t>(of(2));
            ExpectCopied<std::int32_t>(of(4));
            ExpectCopied<std::int64_t>(of(8));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace stepnet
