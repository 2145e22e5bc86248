// Sums have the same bits on vectors of any width: 64 partial sums, element j in that of j mod 64, of which each half
// is added to the other until one is left.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "op_test.h"
#include "stepnet/tests/core/for_each_target.h"

namespace stepnet {
namespace {

template <typename T>
T PartialSums(const std::vector<T>& terms) {
  std::array<T, 64> sums = {};
  for (size_t j = 0; j < terms.size(); ++j) sums[j % 64] += terms[j];
  for (size_t half = 32; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

constexpr std::int64_t kSizes[] = {1, 7, 64, 65, 200, 1000, 4099};

template <typename T>
std::vector<T> Elements(std::int64_t n) {
  std::vector<T> elements;
  for (std::int64_t i = 0; i < n; ++i) elements.push_back(static_cast<T>(std::sin(static_cast<double>(i) * i)));
  return elements;
}

template <typename T>
T SumOf(const char* type, const std::vector<T>& x) {
  const Tensor tensor = Tensor::Of<T>(Shape({static_cast<std::int64_t>(x.size())}), x);
  return *OpTest(type).Input("x", tensor).Run()[0].template data<T>();
}

template <typename T>
void ExpectPartialSums() {
  for (const std::int64_t n : kSizes) {
    const std::vector<T> x = Elements<T>(n);
    std::vector<T> squares;
    for (const T element : x) squares.push_back(element * element);
    EXPECT_EQ(SumOf("SumElements", x), PartialSums(x)) << n;
    EXPECT_EQ(SumOf("SumSqrElements", x), PartialSums(squares)) << n;
  }
}

TEST(SumElements, HasTheSameBitsOnEveryTarget) {
  ForEachTarget([] {
    ExpectPartialSums<float>();
    ExpectPartialSums<double>();
  });
}

// More than are added up at once.
TEST(SumElements, OfManyElementsHasTheSameBits) {
  const std::vector<float> x = Elements<float>((1 << 20) + 1234);
  std::vector<float> squares;
  for (const float element : x) squares.push_back(element * element);
  EXPECT_EQ(SumOf("SumElements", x), PartialSums(x));
  EXPECT_EQ(SumOf("SumSqrElements", x), PartialSums(squares));
}

TEST(ClipByGlobalNorm, HasTheSameBitsOnEveryTarget) {
  ForEachTarget([] {
    for (const std::int64_t n : kSizes) {
      const std::vector<double> x = Elements<double>(n);
      std::vector<double> squares;
      for (const double element : x) squares.push_back(element * element);
      const OpTest test = OpTest("ClipByGlobalNorm", 2).Arg("max_norm", 1e9f).Input("x", Tensor::Of<double>({n}, x));
      EXPECT_EQ(*test.Run()[1].data<double>(), std::sqrt(PartialSums(squares))) << n;
    }
  });
}

// All dimensions of [2, 3, n] but the middle are summed: sums of rows, which are added one after the other.
TEST(SumReduceLike, HasTheSameBitsOnEveryTarget) {
  ForEachTarget([] {
    for (const std::int64_t n : kSizes) {
      const std::vector<float> x = Elements<float>(6 * n);
      const std::vector<Tensor> sums = OpTest("SumReduceLike")
                                           .Input("x", Tensor::Of<float>({2, 3, n}, x))
                                           .Input("like", Tensor::Of<float>({3, 1}, {0, 0, 0}))
                                           .Run();
      for (std::int64_t j = 0; j < 3; ++j) {
        float sum = 0;
        for (std::int64_t i = 0; i < 2; ++i) {
          const auto begin = x.begin() + (i * 3 + j) * n;
          sum += n == 1 ? *begin : PartialSums(std::vector<float>(begin, begin + n));
        }
        EXPECT_EQ(sums[0].data<float>()[j], sum) << n;
      }
    }
  });
}

}  // namespace
}  // namespace stepnet
