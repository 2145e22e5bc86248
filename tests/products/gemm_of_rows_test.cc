#include "stepnet/products/gemm_of_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/products/product.h"

namespace stepnet {
namespace {

Product ProductOfRows(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k = k, .a_transposed = false, .b_transposed = true};
}

// In pieces of so many rows and columns.
std::vector<float> Multiply(const Product& product, bool accumulates, bool has_bias, std::int64_t rows,
                            std::int64_t columns) {
  return product.Run(accumulates, rows, columns,
                     [&](std::int64_t m, std::int64_t n, const MatrixView<float>& a, const MatrixView<float>& b,
                         float* c, std::int64_t column) {
                       GemmOfRows(m, n, product.k, a.data, a.stride, b.data, b.stride, c, product.c_stride, accumulates,
                                  has_bias ? product.bias.data() + column : nullptr);
                     });
}

void FollowsItsFormula() {
  for (const std::int64_t m : {1, 2, 5, 6, 7, 13, 36}) {
    for (const std::int64_t n : {1, 3, 4, 5, 22}) {
      for (const std::int64_t k : {0, 1, 15, 16, 33, 200}) {
        const Product product = ProductOfRows(m, n, k);
        for (unsigned flags = 0; flags < 4; ++flags) {
          const bool accumulates = (flags & 1) != 0, has_bias = (flags & 2) != 0;
          const std::vector<float> out = Multiply(product, accumulates, has_bias, m, n);
          const double tolerance = std::numeric_limits<float>::epsilon() * static_cast<double>(k + 4);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              ASSERT_NEAR(out[i * product.c_stride + j], product.Expected(i, j, accumulates, has_bias), tolerance)
                  << m << " " << n << " " << k << ", flags " << flags << ", at " << i << ", " << j;
            }
            for (std::int64_t j = n; j < product.c_stride; ++j) ASSERT_TRUE(std::isnan(out[i * product.c_stride + j]));
          }
        }
      }
    }
  }
}

void GivesElementsTheSameBitsInAnyPieces() {
  const Product product = ProductOfRows(29, 23, 130);
  const std::vector<float> whole = Multiply(product, false, true, product.m, product.n);
  for (const std::int64_t rows : {1, 4, 6, 11}) {
    for (const std::int64_t columns : {1, 3, 4, 9}) {
      EXPECT_TRUE(AreSame(Multiply(product, false, true, rows, columns), whole))
          << rows << " rows, " << columns << " columns";
    }
  }
}

void TakesBFloat16ForTheFloatsThatTheyAre() {
  Product product = ProductOfRows(14, 9, 75);
  std::vector<BFloat16> stored;
  for (float& value : product.b) {
    stored.push_back(ToBFloat16(value));
    value = ToFloat(stored.back());
  }
  std::vector<float> out = product.Before(false);
  GemmOfRows(product.m, product.n, product.k, product.a.data(), product.a_stride, stored.data(), product.b_stride,
             out.data(), product.c_stride);
  EXPECT_TRUE(AreSame(out, Multiply(product, false, false, product.m, product.n)));
}

void PutsNaNAndInfinityWhereTermsHaveThem() {
  Product product = ProductOfRows(7, 6, 40);
  product.a[2 * product.a_stride + 39] = Product::kNaN;
  product.b[3 * product.b_stride + 17] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = Multiply(product, false, false, product.m, product.n);
  for (std::int64_t i = 0; i < product.m; ++i) {
    for (std::int64_t j = 0; j < product.n; ++j) {
      const float element = out[i * product.c_stride + j];
      EXPECT_EQ(std::isnan(element), i == 2) << i << ", " << j;
      EXPECT_EQ(std::isinf(element), i != 2 && j == 3) << i << ", " << j;
    }
  }
}

TEST(GemmOfRows, KeepsItsPromisesOnEveryTarget) {
  ForEachTarget([] {
    FollowsItsFormula();
    GivesElementsTheSameBitsInAnyPieces();
    TakesBFloat16ForTheFloatsThatTheyAre();
    PutsNaNAndInfinityWhereTermsHaveThem();
  });
}

TEST(GemmOfRows, IsWhatGemmTakesForFewLongRows) {
  constexpr std::int64_t m = 24, n = 10, k = 256;
  static_assert(IsGemmOfRows(m, k) && !IsGemmOfRows(1, k) && !IsGemmOfRows(m, 8 * m - 1));
  const Product product = ProductOfRows(m, n, k);
  std::vector<float> out = product.Before(false);
  Gemm<float>(m, n, k, product.A(), product.B(), out.data(), product.c_stride, false, product.bias.data());
  EXPECT_TRUE(AreSame(out, Multiply(product, false, true, m, n)));
}

}  // namespace
}  // namespace stepnet
