#include "stepnet/products/gemm_of_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "stepnet/products/gemm.h"
#include "stepnet/tests/core/for_each_target.h"

namespace stepnet {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A product with its operands, all of whose rows are longer than they need to be: what nobody reads is NaN.
struct ProductOfRows {
  std::int64_t m, n, k, a_stride = k + 3, b_stride = k + 1, c_stride = n + 2;
  std::vector<float> a = Random(m, k, a_stride), b = Random(n, k, b_stride), c = Random(m, n, c_stride),
                     bias = Random(1, n, n);

  std::vector<float> Random(std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    std::mt19937 random(static_cast<unsigned>(rows + 7 * columns + 31 * stride));
    std::uniform_real_distribution<float> distribution(-1, 1);
    std::vector<float> values(static_cast<size_t>(rows * stride), kNaN);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) values[i * stride + j] = distribution(random);
    }
    return values;
  }

  // In pieces of so many rows and columns.
  std::vector<float> Run(bool accumulates, bool has_bias, std::int64_t rows, std::int64_t columns) const {
    std::vector<float> out = accumulates ? c : std::vector<float>(c.size(), kNaN);
    for (std::int64_t i = 0; i < m; i += rows) {
      for (std::int64_t j = 0; j < n; j += columns) {
        GemmOfRows(std::min(rows, m - i), std::min(columns, n - j), k, a.data() + i * a_stride, a_stride,
                   b.data() + j * b_stride, b_stride, out.data() + i * c_stride + j, c_stride, accumulates,
                   has_bias ? bias.data() + j : nullptr);
      }
    }
    return out;
  }

  double Expected(std::int64_t i, std::int64_t j, bool accumulates, bool has_bias) const {
    double sum = (accumulates ? c[i * c_stride + j] : 0.0) + (has_bias ? bias[j] : 0.0);
    for (std::int64_t l = 0; l < k; ++l) sum += static_cast<double>(a[i * a_stride + l]) * b[j * b_stride + l];
    return sum;
  }
};

bool AreSame(const std::vector<float>& x, const std::vector<float>& y) {
  return std::ranges::equal(x, y,
                            [](float one, float other) { return one == other || (one != one && other != other); });
}

void FollowsItsFormula() {
  for (const std::int64_t m : {1, 2, 5, 6, 7, 13, 36}) {
    for (const std::int64_t n : {1, 3, 4, 5, 22}) {
      for (const std::int64_t k : {0, 1, 15, 16, 33, 200}) {
        const ProductOfRows product{m, n, k};
        for (unsigned flags = 0; flags < 4; ++flags) {
          const bool accumulates = (flags & 1) != 0, has_bias = (flags & 2) != 0;
          const std::vector<float> out = product.Run(accumulates, has_bias, m, n);
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
  const ProductOfRows product{29, 23, 130};
  const std::vector<float> whole = product.Run(false, true, product.m, product.n);
  for (const std::int64_t rows : {1, 4, 6, 11}) {
    for (const std::int64_t columns : {1, 3, 4, 9}) {
      EXPECT_TRUE(AreSame(product.Run(false, true, rows, columns), whole))
          << rows << " rows, " << columns << " columns";
    }
  }
}

void TakesBFloat16ForTheFloatsThatTheyAre() {
  ProductOfRows product{14, 9, 75};
  std::vector<BFloat16> stored;
  for (float& value : product.b) {
    stored.push_back(ToBFloat16(value));
    value = ToFloat(stored.back());
  }
  std::vector<float> out(product.c.size(), kNaN);
  GemmOfRows(product.m, product.n, product.k, product.a.data(), product.a_stride, stored.data(), product.b_stride,
             out.data(), product.c_stride);
  EXPECT_TRUE(AreSame(out, product.Run(false, false, product.m, product.n)));
}

void PutsNaNAndInfinityWhereTermsHaveThem() {
  ProductOfRows product{7, 6, 40};
  product.a[2 * product.a_stride + 39] = kNaN;
  product.b[3 * product.b_stride + 17] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = product.Run(false, false, product.m, product.n);
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
  const ProductOfRows product{m, n, k};
  std::vector<float> out(product.c.size(), kNaN);
  Gemm<float>(m, n, k, {product.a.data(), product.a_stride}, {product.b.data(), product.b_stride, true}, out.data(),
              product.c_stride, false, product.bias.data());
  EXPECT_TRUE(AreSame(out, product.Run(false, true, m, n)));
}

}  // namespace
}  // namespace stepnet
