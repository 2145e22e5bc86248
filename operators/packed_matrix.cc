// B is kept as panels of kPanelVectors vectors of columns, each panel row by row of B, so that a product reads memory
// in order. A tile of up to kTileRows rows of A by one panel has its sums in registers over the whole of K: 8 x 48
// floats on AVX-512, which needs a load of B for eight multiply-adds and a broadcast of A for three.
#include "stepnet/operators/packed_matrix.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/packed_matrix.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "stepnet/operators/partial_vectors-inl.h"

#ifndef STEPNET_OPERATORS_PACKED_MATRIX_PRODUCT_
#define STEPNET_OPERATORS_PACKED_MATRIX_PRODUCT_
namespace stepnet {

template <typename T>
struct PackedProduct {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t a_stride;
  const T* panels;
  T* c;
  std::int64_t c_stride;
  bool accumulates;
  const T* bias;
};

}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

constexpr int kPanelVectors = 3;
// As many as leave registers for a row of the panel: there are 32 with AVX-512 and on ARM, 16 on older x86.
constexpr int kTileRows = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 4 : 8;

// Rows [row, row + R) of the product by V vectors of columns from `column` on; the last has `last` columns of C.
template <int R, int V, typename T>
HWY_INLINE void MultiplyTile(const PackedProduct<T>& p, std::int64_t row, std::int64_t column, std::int64_t last,
                             const T* panel) {
  const hn::ScalableTag<T> d;
  using Vector = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  T* c = p.c + row * p.c_stride + column;
  const auto load = [&](const T* from, int v) HWY_ATTR {
    return v + 1 == V && last < lanes ? LoadPart(d, from + v * lanes, last) : hn::LoadU(d, from + v * lanes);
  };
  Vector sums[R][V];
  for (int v = 0; v < V; ++v) {
    const Vector start = p.bias == nullptr ? hn::Zero(d) : load(p.bias + column, v);
    for (int r = 0; r < R; ++r) sums[r][v] = p.accumulates ? hn::Add(load(c + r * p.c_stride, v), start) : start;
  }
  const T* a = p.a + row * p.a_stride;
  for (std::int64_t k = 0; k < p.k; ++k, panel += V * lanes) {
    Vector b[V];
    for (int v = 0; v < V; ++v) b[v] = hn::LoadU(d, panel + v * lanes);
    for (int r = 0; r < R; ++r) {
      const Vector factor = hn::Set(d, a[r * p.a_stride + k]);
      for (int v = 0; v < V; ++v) sums[r][v] = hn::MulAdd(factor, b[v], sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    T* to = c + r * p.c_stride;
    for (int v = 0; v + 1 < V; ++v) hn::StoreU(sums[r][v], d, to + v * lanes);
    if (last < lanes) {
      StorePart(d, sums[r][V - 1], to + (V - 1) * lanes, last);
    } else {
      hn::StoreU(sums[r][V - 1], d, to + (V - 1) * lanes);
    }
  }
}

template <int V, typename T>
HWY_INLINE void MultiplyPanel(const PackedProduct<T>& p, std::int64_t row, std::int64_t rows_end, std::int64_t column,
                              std::int64_t last, const T* panel) {
  for (; row + kTileRows <= rows_end; row += kTileRows) MultiplyTile<kTileRows, V>(p, row, column, last, panel);
  if (kTileRows > 4 && row + 4 <= rows_end) {
    MultiplyTile<4, V>(p, row, column, last, panel);
    row += 4;
  }
  if (row + 2 <= rows_end) {
    MultiplyTile<2, V>(p, row, column, last, panel);
    row += 2;
  }
  if (row < rows_end) MultiplyTile<1, V>(p, row, column, last, panel);
}

template <typename T>
HWY_INLINE void MultiplyPacked(const PackedProduct<T>& p) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Rows of A that stay in the second-level cache while all panels go by.
  constexpr std::int64_t kCacheBytes = 256 * 1024;
  const std::int64_t row_bytes = std::max<std::int64_t>(p.k, 1) * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t block = std::max<std::int64_t>(kCacheBytes / row_bytes / kTileRows, 1) * kTileRows;
  for (std::int64_t row = 0; row < p.m; row += block) {
    const std::int64_t rows_end = std::min(row + block, p.m);
    const T* panel = p.panels;
    for (std::int64_t column = 0; column < p.n; column += kPanelVectors * lanes) {
      const std::int64_t left = p.n - column;
      const int vectors = static_cast<int>(std::min<std::int64_t>((left + lanes - 1) / lanes, kPanelVectors));
      const std::int64_t last = std::min(left - (vectors - 1) * lanes, lanes);
      switch (vectors) {
        case 1: MultiplyPanel<1>(p, row, rows_end, column, last, panel); break;
        case 2: MultiplyPanel<2>(p, row, rows_end, column, last, panel); break;
        default: MultiplyPanel<3>(p, row, rows_end, column, last, panel); break;
      }
      panel += vectors * lanes * p.k;
    }
  }
}

// Columns, with those that fill up the last vector.
template <typename T>
HWY_INLINE std::int64_t PackedColumns(std::int64_t n) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return (n + lanes - 1) / lanes * lanes;
}

template <typename T>
HWY_INLINE void Pack(std::int64_t k, std::int64_t n, const MatrixView<T>& b, T* panels) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  constexpr std::int64_t kBlock = 16;  // so many rows of a panel are in the first-level cache when b is transposed
  for (std::int64_t column = 0; column < n; column += kPanelVectors * lanes) {
    const std::int64_t filled = std::min(n - column, kPanelVectors * lanes);
    const std::int64_t width = (filled + lanes - 1) / lanes * lanes;
    for (std::int64_t begin = 0; begin < k; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, k);
      for (std::int64_t j = 0; j < width; ++j) {
        const T* from = j >= filled ? nullptr : b.data + (b.transposed ? (column + j) * b.stride : column + j);
        const std::int64_t step = b.transposed ? 1 : b.stride;
        for (std::int64_t i = begin; i < end; ++i) panels[i * width + j] = from == nullptr ? T{0} : from[i * step];
      }
    }
    panels += width * k;
  }
}

std::int64_t PackedColumnsFloat(std::int64_t n) { return PackedColumns<float>(n); }
std::int64_t PackedColumnsDouble(std::int64_t n) { return PackedColumns<double>(n); }
void PackFloat(std::int64_t k, std::int64_t n, const MatrixView<float>& b, float* panels) { Pack(k, n, b, panels); }
void PackDouble(std::int64_t k, std::int64_t n, const MatrixView<double>& b, double* panels) { Pack(k, n, b, panels); }
void MultiplyFloat(const PackedProduct<float>& product) { MultiplyPacked(product); }
void MultiplyDouble(const PackedProduct<double>& product) { MultiplyPacked(product); }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(PackedColumnsFloat);
HWY_EXPORT(PackedColumnsDouble);
HWY_EXPORT(PackFloat);
HWY_EXPORT(PackDouble);
HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyDouble);

template <typename T>
PackedMatrix<T>::PackedMatrix(std::int64_t k, std::int64_t n, MatrixView<T> b) : k_(k), n_(n) {
  if constexpr (std::is_same_v<T, float>) {
    panels_ = Tensor(DType::kFloat, {k, HWY_DYNAMIC_DISPATCH(PackedColumnsFloat)(n)});
    HWY_DYNAMIC_DISPATCH(PackFloat)(k, n, b, panels_.data<T>());
  } else {
    panels_ = Tensor(DType::kDouble, {k, HWY_DYNAMIC_DISPATCH(PackedColumnsDouble)(n)});
    HWY_DYNAMIC_DISPATCH(PackDouble)(k, n, b, panels_.data<T>());
  }
}

template <typename T>
void PackedMatrix<T>::Multiply(std::int64_t m, const T* a, std::int64_t a_stride, T* c, std::int64_t c_stride,
                               bool accumulates, const T* bias) const {
  const PackedProduct<T> product = {.m = m,
                                    .n = n_,
                                    .k = k_,
                                    .a = a,
                                    .a_stride = a_stride,
                                    .panels = panels_.data<T>(),
                                    .c = c,
                                    .c_stride = c_stride,
                                    .accumulates = accumulates,
                                    .bias = bias};
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(MultiplyFloat)(product);
  } else {
    HWY_DYNAMIC_DISPATCH(MultiplyDouble)(product);
  }
}

template class PackedMatrix<float>;
template class PackedMatrix<double>;

}  // namespace stepnet
#endif  // HWY_ONCE
