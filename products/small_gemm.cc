#include "stepnet/products/small_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "stepnet/core/unroll.h"
#include "stepnet/products/transpose_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/small_gemm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile has so many sums in registers, of as many vectors of each row as there is room for.
#if HWY_MAX_BYTES >= 64
constexpr int kSumsOfTile = 16;
#else
constexpr int kSumsOfTile = 8;
#endif
constexpr int kMaxRowsOfTile = 8, kMaxVectorsOfTile = 8;
constexpr int VectorsOfTile(int rows) {
  return std::min(kMaxVectorsOfTile, static_cast<int>(std::bit_floor(static_cast<unsigned>(kSumsOfTile / rows))));
}

// Where a product reads and writes; element (i, l) of A is at i * a_row + l * a_term.
template <typename T>
struct Operands {
  std::int64_t k;
  const T* a;
  std::int64_t a_row, a_term;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  bool accumulates;
};

// Some rows of some vectors of columns or, with PartOfVector, of a part of one. Several sums hide the latency of one
// multiplication behind the others.
template <int kRows, int kVectors, class D, class Part, typename T>
HWY_NOINLINE void Tile(D d, Part part, const Operands<T>& of, std::int64_t i, std::int64_t j) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* HWY_RESTRICT a = of.a + i * of.a_row;
  const T* HWY_RESTRICT b = of.b + j;
  T* HWY_RESTRICT c = of.c + i * of.c_stride + j;
  hn::Vec<D> sums[kRows][kVectors];
  STEPNET_UNROLL
  for (int r = 0; r < kRows; ++r) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = of.accumulates ? part.Load(d, c + r * of.c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (std::int64_t l = 0; l < of.k; ++l, a += of.a_term, b += of.b_stride) {
    hn::Vec<D> factors[kRows];
    STEPNET_UNROLL
    for (int r = 0; r < kRows; ++r) factors[r] = hn::Set(d, a[r * of.a_row]);
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto factor = part.Load(d, b + v * lanes);
      STEPNET_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::MulAdd(factors[r], factor, sums[r][v]);
    }
  }
  STEPNET_UNROLL
  for (int r = 0; r < kRows; ++r) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) part.Store(d, sums[r][v], c + r * of.c_stride + v * lanes);
  }
}

// Columns from j on, in tiles of kVectors vectors while there are as many, then of half as many.
template <int kRows, int kVectors, class D, typename T>
HWY_INLINE void Columns(D d, const Operands<T>& of, std::int64_t n, std::int64_t i, std::int64_t j) {
  const auto width = kVectors * static_cast<std::int64_t>(hn::Lanes(d));
  for (; j + width <= n; j += width) Tile<kRows, kVectors>(d, WholeVectors(), of, i, j);
  if constexpr (kVectors > 1) {
    Columns<kRows, kVectors / 2>(d, of, n, i, j);
  } else if (j < n) {
    Tile<kRows, 1>(d, PartOfVector{n - j}, of, i, j);
  }
}

template <int kRows, class D, typename T>
HWY_INLINE void Rows(D d, std::int64_t rows, const Operands<T>& of, std::int64_t n, std::int64_t i) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return Rows<kRows - 1>(d, rows, of, n, i);
  }
  Columns<kRows, VectorsOfTile(kRows)>(d, of, n, i, 0);
}

template <typename T>
void MultiplySmall(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, const T* b, std::int64_t b_stride,
                   T* c, std::int64_t c_stride, bool accumulates) {
  const hn::ScalableTag<T> d;
  const Operands<T> of = {.k = k,
                          .a = a.data,
                          .a_row = a.transposed ? 1 : a.stride,
                          .a_term = a.transposed ? a.stride : 1,
                          .b = b,
                          .b_stride = b_stride,
                          .c = c,
                          .c_stride = c_stride,
                          .accumulates = accumulates};
  const std::int64_t tiles = (m + kMaxRowsOfTile - 1) / kMaxRowsOfTile;  // of about as many rows each
  for (std::int64_t tile = 0, i = 0; tile < tiles; ++tile) {
    const std::int64_t end = m * (tile + 1) / tiles;
    Rows<kMaxRowsOfTile>(d, end - i, of, n, i);
    i = end;
  }
}

void SmallFloat(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<float> a, const float* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates) {
  MultiplySmall(m, n, k, a, b, b_stride, c, c_stride, accumulates);
}
void SmallDouble(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<double> a, const double* b,
                 std::int64_t b_stride, double* c, std::int64_t c_stride, bool accumulates) {
  MultiplySmall(m, n, k, a, b, b_stride, c, c_stride, accumulates);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SmallFloat);
HWY_EXPORT(SmallDouble);

namespace {

template <typename T>
void MultiplyRows(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, const T* b, std::int64_t b_stride,
                  T* c, std::int64_t c_stride, bool accumulates) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(SmallFloat)(m, n, k, a, b, b_stride, c, c_stride, accumulates);
  } else {
    HWY_DYNAMIC_DISPATCH(SmallDouble)(m, n, k, a, b, b_stride, c, c_stride, accumulates);
  }
}

}  // namespace

template <typename T>
void SmallGemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
               std::int64_t c_stride, bool accumulates) {
  if (!b.transposed) return MultiplyRows(m, n, k, a, b.data, b.stride, c, c_stride, accumulates);
  if (k == 1 && b.stride == 1) return MultiplyRows(m, n, k, a, b.data, n, c, c_stride, accumulates);  // a row, too
  std::array<T, kBlockOfSmallGemm> rows;
  constexpr std::int64_t kMultiple = 64;  // whole tiles
  const std::int64_t room = kBlockOfSmallGemm / k, block = room >= n ? n : room / kMultiple * kMultiple;
  for (std::int64_t j = 0; j < n; j += block) {
    const std::int64_t columns = std::min(block, n - j);
    TransposeMatrix(columns, k, b.data + j * b.stride, b.stride, rows.data(), columns);
    MultiplyRows(m, columns, k, a, rows.data(), columns, c + j, c_stride, accumulates);
  }
}

template void SmallGemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<float>, MatrixView<float>, float*,
                        std::int64_t, bool);
template void SmallGemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<double>, MatrixView<double>, double*,
                        std::int64_t, bool);

}  // namespace stepnet
#endif  // HWY_ONCE
