#include "stepnet/operators/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "for_each_target.h"

namespace stepnet {
namespace {

template <typename T>
std::vector<T> RandomValues(std::int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<T> distribution(-1, 1);
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) value = distribution(random);
  return values;
}

template <typename T>
class PackedMatrixTest : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(PackedMatrixTest, FloatTypes);

template <typename T>
void ExpectProduct(std::int64_t m, std::int64_t n, std::int64_t k, unsigned flags) {
  SCOPED_TRACE(testing::Message() << "m " << m << ", n " << n << ", k " << k << ", flags " << flags);
  const bool transposed = flags & 1, accumulates = flags & 2, has_bias = flags & 4;
  const std::int64_t extra = flags & 8 ? 3 : 0;
  const std::int64_t a_stride = k + extra, b_stride = (transposed ? k : n) + extra, c_stride = n + extra;
  const std::vector<T> a = RandomValues<T>(m * a_stride, 1), b = RandomValues<T>((transposed ? n : k) * b_stride, 2);
  const std::vector<T> bias = RandomValues<T>(n, 3), before = RandomValues<T>(m * c_stride, 4);
  std::vector<T> c = before;
  if (!accumulates) {  // what is not read may be anything
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(&c[i * c_stride], n, std::numeric_limits<T>::quiet_NaN());
  }
  const PackedMatrix<T> packed(k, n, {b.data(), b_stride, transposed});
  packed.Multiply(m, a.data(), a_stride, c.data(), c_stride, accumulates, has_bias ? bias.data() : nullptr);
  const double tolerance = std::numeric_limits<T>::epsilon() * static_cast<double>(k + 4);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < c_stride; ++j) {
      const double old = before[i * c_stride + j];
      if (j >= n) {
        ASSERT_EQ(c[i * c_stride + j], old) << "written beyond the end of row " << i;
        continue;
      }
      double expected = (accumulates ? old : 0) + (has_bias ? bias[j] : 0);
      for (std::int64_t l = 0; l < k; ++l) {
        expected += static_cast<double>(a[i * a_stride + l]) * b[transposed ? j * b_stride + l : l * b_stride + j];
      }
      ASSERT_NEAR(c[i * c_stride + j], expected, tolerance) << "at " << i << ", " << j;
    }
  }
}

TYPED_TEST(PackedMatrixTest, FollowsItsFormula) {
  ForEachTarget([] {
    for (unsigned flags = 0; flags < 16; ++flags) {
      for (const std::int64_t m : {1, 7, 19}) {
        for (const std::int64_t n : {1, 15, 16, 48, 53, 101}) ExpectProduct<TypeParam>(m, n, 21, flags);
      }
    }
    ExpectProduct<TypeParam>(35, 49, 3000, 7);  // more rows than are in the cache at once
  });
}

TYPED_TEST(PackedMatrixTest, AcceptsNoElements) {
  for (unsigned flags = 0; flags < 16; ++flags) {
    ExpectProduct<TypeParam>(0, 5, 4, flags);
    ExpectProduct<TypeParam>(3, 0, 4, flags);
    ExpectProduct<TypeParam>(3, 5, 0, flags);
  }
}

// Rows and columns may be divided anywhere.
TYPED_TEST(PackedMatrixTest, GivesTheSameBitsHoweverWorkIsDivided) {
  using T = TypeParam;
  constexpr std::int64_t kM = 21, kN = 117, kK = 40;
  const std::vector<T> a = RandomValues<T>(kM * kK, 1), b = RandomValues<T>(kN * kK, 2), bias = RandomValues<T>(kN, 3);
  ForEachTarget([&] {
    std::vector<T> whole(kM * kN), parts(kM * kN);
    PackedMatrix<T>(kK, kN, {b.data(), kK, true}).Multiply(kM, a.data(), kK, whole.data(), kN, false, bias.data());
    for (const std::int64_t rows : {1, 2, 5, 13}) {
      for (const std::int64_t columns : {1, 17, 50}) {
        std::fill(parts.begin(), parts.end(), T{0});
        for (std::int64_t j = 0; j < kN; j += columns) {
          const std::int64_t n = std::min(columns, kN - j);
          const PackedMatrix<T> packed(kK, n, {b.data() + j * kK, kK, true});
          for (std::int64_t i = 0; i < kM; i += rows) {
            packed.Multiply(std::min(rows, kM - i), &a[i * kK], kK, &parts[i * kN + j], kN, false, &bias[j]);
          }
        }
        ASSERT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(T)), 0)
            << "in blocks of " << rows << " rows and " << columns << " columns";
      }
    }
  });
}

}  // namespace
}  // namespace stepnet
