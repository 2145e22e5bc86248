#include "stepnet/products/panel_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

namespace stepnet {
namespace {

// A product with its operands; rows of A and C are longer than they need to be.
template <typename T>
struct PanelCase {
  std::int64_t m, n, k, a_stride, c_stride;
  std::vector<T> a, b, c, bias, panels;

  PanelCase(std::int64_t m, std::int64_t n, std::int64_t k, bool transposed)
      : m(m), n(n), k(k), a_stride(k + 3), c_stride(n + 5) {
    std::mt19937 random(static_cast<unsigned>(m + 7 * n + 31 * k));
    std::uniform_real_distribution<T> distribution(-1, 1);
    const auto fill = [&](std::vector<T>& values, std::int64_t size) {
      values.resize(static_cast<size_t>(size));
      for (T& value : values) value = distribution(random);
    };
    fill(a, m * a_stride);
    fill(c, m * c_stride);
    fill(bias, n);
    std::vector<T> stored;
    const std::int64_t stride = (transposed ? k : n) + 2;
    fill(stored, (transposed ? n : k) * stride);
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t j = 0; j < n; ++j) b.push_back(stored[transposed ? j * stride + l : l * stride + j]);
    }
    // What nobody writes would show.
    panels.assign(static_cast<size_t>(PanelElements(n, k)), std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t panel = NumPanels(n); panel-- > 0;) {
      PackPanels<T>(n, k, {stored.data(), stride, transposed}, panel, panel + 1, panels.data());
    }
  }

  // In pieces of so many rows and units of columns, of which the first or the last come first.
  std::vector<T> Run(bool accumulates, bool has_bias, std::int64_t rows, std::int64_t units,
                     bool from_last = false) const {
    std::vector<T> out = c;
    for (std::int64_t i = 0; i < m && !accumulates; ++i) {
      std::fill_n(out.begin() + i * c_stride, n, std::numeric_limits<T>::quiet_NaN());  // it is not read
    }
    for (std::int64_t i = 0; i < m; i += rows) {
      for (std::int64_t j = 0; j < n; j += units * kPanelUnit) {
        const PanelColumns columns{n, j, std::min(n, j + units * kPanelUnit), n, from_last};
        PanelProduct(std::min(rows, m - i), columns, k, a.data() + i * a_stride, a_stride, panels.data(),
                     out.data() + i * c_stride, c_stride, accumulates, has_bias ? bias.data() : nullptr);
      }
    }
    return out;
  }
};

TEST(Panels, AreTwoOrThreeUnitsWide) {
  for (std::int64_t n = 1; n < 500; ++n) {
    std::int64_t end = 0;
    for (std::int64_t panel = 0; panel < NumPanels(n); ++panel) {
      ASSERT_EQ(BeginOfPanel(panel, n), end);
      end = BeginOfPanel(panel + 1, n);
      const std::int64_t units = (end - BeginOfPanel(panel, n)) / kPanelUnit;
      ASSERT_TRUE(units == 2 || units == 3 || (units == 1 && n <= kPanelUnit)) << units << " of " << n;
      for (std::int64_t j = BeginOfPanel(panel, n); j < end; ++j) ASSERT_EQ(PanelOfColumn(j, n), panel) << j;
    }
    ASSERT_GE(end, n);
    ASSERT_LT(end, n + kPanelUnit);
  }
}

template <typename T>
class PanelProductTest : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(PanelProductTest, FloatTypes);

TYPED_TEST(PanelProductTest, FollowsItsFormula) {
  for (const std::int64_t m : {0, 1, 2, 3, 5, 8, 9, 31}) {
    for (const std::int64_t n : {1, 8, 15, 16, 17, 48, 63, 64, 65, 112, 130}) {
      for (const std::int64_t k : {0, 1, 3, 40}) {
        for (unsigned flags = 0; flags < 16; ++flags) {
          const PanelCase<TypeParam> product(m, n, k, (flags & 1) != 0);
          const bool accumulates = (flags & 2) != 0, has_bias = (flags & 4) != 0;
          const std::vector<TypeParam> out = product.Run(accumulates, has_bias, m + 1, 100, (flags & 8) != 0);
          const double tolerance = std::numeric_limits<TypeParam>::epsilon() * static_cast<double>(k + 4);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < product.c_stride; ++j) {
              const double before = product.c[i * product.c_stride + j];
              double expected = before;
              if (j < n) {
                expected = (accumulates ? before : 0) + (has_bias ? product.bias[j] : 0);
                for (std::int64_t l = 0; l < k; ++l) {
                  expected += static_cast<double>(product.a[i * product.a_stride + l]) * product.b[l * n + j];
                }
              }
              ASSERT_NEAR(out[i * product.c_stride + j], expected, j < n ? tolerance : 0)
                  << m << " " << n << " " << k << ", flags " << flags << ", at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

// So threads may divide a product as they like.
TYPED_TEST(PanelProductTest, BitsDoNotDependOnHowItIsCut) {
  for (const auto& [m, n, k] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{14, 200, 300}, {33, 64, 77}}) {
    const PanelCase<TypeParam> product(m, n, k, true);
    const std::vector<TypeParam> whole = product.Run(true, true, m, 100);
    for (const std::int64_t rows : {1, 2, 3, 5, 8}) {
      for (const std::int64_t units : {1, 2, 3, 4, 5}) {
        for (const bool from_last : {false, true}) {
          const std::vector<TypeParam> pieces = product.Run(true, true, rows, units, from_last);
          EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(TypeParam)), 0)
              << rows << " rows, " << units << " units" << (from_last ? ", the last ones first" : "");
        }
      }
    }
  }
}

// Two groups of 64 columns, of which [16, 48) are computed; panels are cut at 48 and 96.
TYPED_TEST(PanelProductTest, ColumnsOfGroupsMayComeInAnyOrder) {
  const PanelCase<TypeParam> product(2, 128, 30, false);
  const std::vector<TypeParam> whole = product.Run(false, true, 2, 100);
  for (const bool from_last : {false, true}) {
    std::vector<TypeParam> out(whole.size(), -1);
    PanelProduct(2, {.n = 128, .begin = 16, .end = 48, .group = 64, .from_last = from_last}, 30, product.a.data(),
                 product.a_stride, product.panels.data(), out.data(), product.c_stride, false, product.bias.data());
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 128; ++j) {
        const std::int64_t at = i * product.c_stride + j;
        const bool is_computed = j % 64 >= 16 && j % 64 < 48;
        EXPECT_EQ(out[at], is_computed ? whole[at] : -1) << i << " " << j << " " << from_last;
      }
    }
  }
}

TYPED_TEST(PanelProductTest, NaNStaysInItsRowAndColumn) {
  PanelCase<TypeParam> product(7, 70, 20, false);
  product.a[3 * product.a_stride + 4] = std::numeric_limits<TypeParam>::quiet_NaN();
  const std::vector<TypeParam> out = product.Run(false, false, 7, 100);
  for (std::int64_t i = 0; i < 7; ++i) {
    for (std::int64_t j = 0; j < 70; ++j) EXPECT_EQ(std::isnan(out[i * product.c_stride + j]), i == 3) << i << " " << j;
  }
}

TEST(PanelProduct, PartsOfPanelsMayBePackedApart) {
  for (const auto& [n, k, row, column] :
       {std::tuple{1, 5, 2, 0}, {70, 9, 4, 33}, {48, 7, 7, 48}, {33, 6, 0, 16}, {130, 3, 1, 65}}) {
    std::vector<float> b, transposed;
    for (int i = 0; i < n * k; ++i) b.push_back(static_cast<float>(i + 1));
    for (int i = 0; i < n * k; ++i) transposed.push_back(b[i % k * n + i / k]);
    std::vector<float> expected(static_cast<size_t>(PanelElements(n, k)), -1);
    PackPanels<float>(n, k, {.data = b.data(), .stride = n}, 0, NumPanels(n), expected.data());
    for (const bool is_transposed : {false, true}) {
      const MatrixView<float> view{.data = is_transposed ? transposed.data() : b.data(),
                                   .stride = is_transposed ? k : n,
                                   .transposed = is_transposed};
      std::vector<float> given(static_cast<size_t>(PanelElements(n, k)), -1);
      for (const PanelPart& part : {PanelPart{row, k - row, column, n - column}, PanelPart{0, row, 0, column},
                                    PanelPart{row, k - row, 0, column}, PanelPart{0, row, column, n - column}}) {
        PackPartOfPanels<float>(n, k, view.From(part.row, part.column), part, 0, NumPanels(n), given.data());
      }
      EXPECT_EQ(given, expected) << n << " " << k << " " << row << " " << column << " " << is_transposed;
    }
  }
}

}  // namespace
}  // namespace stepnet
