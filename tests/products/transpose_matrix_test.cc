// TransposeMatrix of every size about its blocks, with strides: each element where it belongs, and nothing else
// touched.
#include "stepnet/products/transpose_matrix.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stepnet {
namespace {

template <typename T>
T Number(std::int64_t i) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::to_string(i);
  } else {
    return static_cast<T>(i);
  }
}

template <typename T>
class TransposeMatrixTest : public testing::Test {};
using Types = testing::Types<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, float, double, std::string>;
TYPED_TEST_SUITE(TransposeMatrixTest, Types);

TYPED_TEST(TransposeMatrixTest, PutsEachElementWhereItBelongsAndTouchesNothingElse) {
  using T = TypeParam;
  const T untouched = Number<T>(255);
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 15, 16, 17, 22, 33}) {
    for (const std::int64_t columns : {0, 1, 2, 3, 4, 5, 7, 8, 9, 18}) {
      const std::int64_t x_stride = columns + 3, y_stride = rows + 2;
      std::vector<T> x;
      for (std::int64_t i = 0; i < rows * x_stride; ++i) x.push_back(Number<T>(i % 251));
      std::vector<T> y((columns + 1) * y_stride, untouched);
      TransposeMatrix(rows, columns, x.data(), x_stride, y.data(), y_stride);
      for (std::int64_t c = 0; c <= columns; ++c) {
        for (std::int64_t r = 0; r < y_stride; ++r) {
          const T expected = c < columns && r < rows ? x[r * x_stride + c] : untouched;
          ASSERT_EQ(y[c * y_stride + r], expected) << rows << " x " << columns << ", element " << r << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace stepnet
