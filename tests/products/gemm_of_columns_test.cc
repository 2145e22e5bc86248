#include "stepnet/products/gemm_of_columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/products/product.h"

namespace stepnet {
namespace {

Product ProductOfColumns(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k = k, .a_transposed = true, .b_transposed = false};
}

// In pieces of so many rows and columns.
std::vector<float> Multiply(const Product& product, bool accumulates, std::int64_t rows, std::int64_t columns) {
  return product.Run(accumulates, rows, columns,
                     [&](std::int64_t m, std::int64_t n, const MatrixView<float>& a, const MatrixView<float>& b,
                         float* c, std::int64_t) {
                       GemmOfColumns(m, n, product.k, a.data, a.stride, b.data, b.stride, c, product.c_stride,
                                     accumulates);
                     });
}

void FollowsItsFormula(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Product product = ProductOfColumns(m, n, k);
  for (const bool accumulates : {false, true}) {
    const std::vector<float> out = Multiply(product, accumulates, m, n);
    const double tolerance = std::numeric_limits<float>::epsilon() * static_cast<double>(k + 2);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        ASSERT_NEAR(out[i * product.c_stride + j], product.Expected(i, j, accumulates, false), tolerance)
            << m << " " << n << " " << k << ", accumulates: " << accumulates << ", at " << i << ", " << j;
      }
      for (std::int64_t j = n; j < product.c_stride; ++j) ASSERT_TRUE(std::isnan(out[i * product.c_stride + j]));
    }
  }
}

void FollowsItsFormulaInAllSizes() {
  for (const std::int64_t m : {1, 4, 5, 8, 13, 27}) {
    for (const std::int64_t n : {1, 7, 16, 33, 48, 50, 100}) {
      for (const std::int64_t k : {0, 1, 3, 20}) FollowsItsFormula(m, n, k);
    }
  }
  FollowsItsFormula(9, 20, 1000);  // more terms than are packed at once
  FollowsItsFormula(300, 20, 5);   // more rows
  FollowsItsFormula(5, 1100, 5);   // more columns
}

void GivesElementsTheSameBitsInAnyPieces() {
  const Product product = ProductOfColumns(29, 103, 430);
  const std::vector<float> whole = Multiply(product, true, product.m, product.n);
  for (const std::int64_t rows : {1, 4, 8, 11}) {
    for (const std::int64_t columns : {1, 16, 40, 60}) {
      EXPECT_TRUE(AreSame(Multiply(product, true, rows, columns), whole)) << rows << " rows, " << columns << " columns";
    }
  }
}

void PutsNaNAndInfinityWhereTermsHaveThem() {
  Product product = ProductOfColumns(11, 60, 40);
  product.a[39 * product.a_stride + 2] = Product::kNaN;
  product.b[17 * product.b_stride + 3] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = Multiply(product, false, product.m, product.n);
  for (std::int64_t i = 0; i < product.m; ++i) {
    for (std::int64_t j = 0; j < product.n; ++j) {
      const float element = out[i * product.c_stride + j];
      EXPECT_EQ(std::isnan(element), i == 2) << i << ", " << j;
      EXPECT_EQ(std::isinf(element), i != 2 && j == 3) << i << ", " << j;
    }
  }
}

TEST(GemmOfColumns, KeepsItsPromisesOnEveryTarget) {
  ForEachTarget([] {
    FollowsItsFormulaInAllSizes();
    GivesElementsTheSameBitsInAnyPieces();
    PutsNaNAndInfinityWhereTermsHaveThem();
  });
}

TEST(GemmOfColumns, IsWhatGemmTakesForManyColumnsOfBoth) {
  constexpr std::int64_t m = 130, n = 260, k = 3000;
  constexpr std::int64_t stride = 1024;
  static_assert(IsGemmOfColumns(m, n, k, stride) && !IsGemmOfColumns(m, 200, k, stride) &&
                !IsGemmOfColumns(100, n, k, stride) && !IsGemmOfColumns(m, n, k, 1000));
  const Product product = {.m = m, .n = n, .k = k, .a_transposed = true, .b_transposed = false, .a_stride = stride};
  std::vector<float> out = product.Before(false);
  Gemm<float>(m, n, k, product.A(), product.B(), out.data(), product.c_stride);
  EXPECT_TRUE(AreSame(out, Multiply(product, false, m, n)));
}

}  // namespace
}  // namespace stepnet
