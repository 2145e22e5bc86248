#include "stepnet/products/small_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/products/product.h"

namespace stepnet {
namespace {

// In pieces of so many rows and columns.
std::vector<float> Multiply(const Product& product, bool accumulates, std::int64_t rows, std::int64_t columns) {
  return product.Run(
      accumulates, rows, columns,
      [&](std::int64_t m, std::int64_t n, const MatrixView<float>& a, const MatrixView<float>& b, float* c,
          std::int64_t) { SmallGemm(m, n, product.k, a, b, c, product.c_stride, accumulates); });
}

void FollowsItsFormula(const Product& product, bool accumulates) {
  const std::int64_t m = product.m, n = product.n, k = product.k;
  SCOPED_TRACE(testing::Message() << m << " " << n << " " << k << ", transposed: " << product.a_transposed
                                  << product.b_transposed << ", accumulates: " << accumulates);
  const std::vector<float> out = Multiply(product, accumulates, m, n);
  const double tolerance = std::numeric_limits<float>::epsilon() * static_cast<double>(k + 2);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      ASSERT_NEAR(out[i * product.c_stride + j], product.Expected(i, j, accumulates, false), tolerance)
          << "at " << i << ", " << j;
    }
    for (std::int64_t j = n; j < product.c_stride; ++j) ASSERT_TRUE(std::isnan(out[i * product.c_stride + j]));
  }
  // An element does not depend on where it lies among how many.
  EXPECT_TRUE(AreSame(out, Multiply(product, accumulates, 3, 5)));
  EXPECT_TRUE(AreSame(out, Multiply(product, accumulates, 1, 1)));
}

TEST(SmallGemm, FollowsItsFormulaInAllSizes) {
  ForEachTarget([] {
    for (const std::int64_t m : {1, 2, 4, 7, 15, 16}) {
      for (const std::int64_t n : {1, 3, 8, 16, 21, 33}) {
        for (const std::int64_t k : {1, 2, 5, 17}) {
          for (unsigned flags = 0; flags < 8; ++flags) {
            FollowsItsFormula(
                {.m = m, .n = n, .k = k, .a_transposed = (flags & 1) != 0, .b_transposed = (flags & 2) != 0},
                (flags & 4) != 0);
          }
        }
      }
    }
  });
}

TEST(SmallGemm, TakesTheLargestSizes) {
  ASSERT_TRUE(IsSmallGemm(64, 1024, 128, false));
  ASSERT_FALSE(IsSmallGemm(64, 1025, 128, false));
  ASSERT_FALSE(IsSmallGemm(65, 1024, 128, false));
  FollowsItsFormula({.m = 11, .n = 1024, .k = 128, .a_transposed = false, .b_transposed = false}, true);
  // Blocks of columns are laid out in turn, the last with fewer.
  ASSERT_TRUE(IsSmallGemm(64, 256, 64, true));
  ASSERT_FALSE(IsSmallGemm(64, 257, 64, true));
  FollowsItsFormula({.m = 9, .n = 256, .k = 64, .a_transposed = false, .b_transposed = true}, false);
  FollowsItsFormula({.m = 9, .n = 300, .k = 50, .a_transposed = true, .b_transposed = true}, true);
  ASSERT_TRUE(IsSmallGemm(9, 31, 130, true));
  FollowsItsFormula({.m = 9, .n = 31, .k = 130, .a_transposed = false, .b_transposed = true}, false);
  FollowsItsFormula({.m = 8, .n = 4096, .k = 1, .a_transposed = false, .b_transposed = true}, false);
}

TEST(SmallGemm, IsWhatGemmTakesForSmallMatrices) {
  for (const std::int64_t k : {1, 30}) {
    const Product product = {.m = 30, .n = 30, .k = k, .a_transposed = true, .b_transposed = false};
    std::vector<float> out = product.Before(false);
    Gemm<float>(30, 30, k, product.A(), product.B(), out.data(), product.c_stride);
    EXPECT_TRUE(AreSame(out, Multiply(product, false, 30, 30)));
  }
}

}  // namespace
}  // namespace stepnet
