#include "stepnet/operators/panel_product.h"

#include <cstddef>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/operators/transpose_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/panel_product.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef STEPNET_PANEL_OPERANDS
#define STEPNET_PANEL_OPERANDS

// Before a loop whose variables are to be registers.
#if HWY_COMPILER_CLANG
#define STEPNET_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STEPNET_UNROLL _Pragma("GCC unroll 8")
#endif

namespace stepnet {
namespace {

// What a product of some rows reads and writes, from its first row and column on.
template <typename T>
struct PanelOperands {
  std::int64_t k;
  const T* a;
  std::int64_t a_stride;
  const T* b;
  std::int64_t b_stride;
  T* c;
  std::int64_t c_stride;
  const T* bias;  // or null
  bool accumulates;
  bool has_more;  // the rows of C behind these come next
  // Of the panel that comes next, or null: each row of tiles fetches lines [first_line, last_line) of each of its rows
  // into the second cache.
  const T* next_panel;
  int first_line, last_line;
};

// Of a row of a panel.
template <typename T>
constexpr int kLinesOfRow = kPanelColumns* static_cast<int>(sizeof(T)) / 64;

}  // namespace
}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// No vector is longer than a unit.
template <typename T>
using Tag = hn::CappedTag<T, static_cast<size_t>(kPanelUnit)>;

// A tile is computed in registers: its sums, a row of B and an element of A. There are 32 with the widest vectors.
#if HWY_MAX_BYTES >= 64
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
constexpr int kTileRows = 6;
constexpr int kMinTilesToFetch = 1000;

HWY_INLINE void PrefetchToSecondCache(const void* data) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(data, 0, 2);
#else
  static_cast<void>(data);
#endif
}

// `last` is how many columns the last of kVectors vectors has.
template <int kRows, int kVectors, typename T>
HWY_INLINE void Tile(const PanelOperands<T>& of, size_t last) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto is_there = hn::FirstN(d, last);
  const bool is_whole = last == static_cast<size_t>(lanes);
  const auto load = [&](const T* row, int v) HWY_ATTR {
    return v + 1 == kVectors && !is_whole ? hn::MaskedLoad(is_there, d, row + v * lanes)
                                          : hn::LoadU(d, row + v * lanes);
  };
  V sums[kRows][kVectors];
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = of.accumulates ? load(of.c + i * of.c_stride, v) : hn::Zero(d);
      if (of.bias != nullptr) sums[i][v] = hn::Add(sums[i][v], load(of.bias, v));
    }
  }
  const bool reads_more = of.accumulates && of.has_more;
  STEPNET_UNROLL
  for (int i = 0; i < kRows && reads_more; ++i) {  // what the next tile begins with may be far away
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(of.c + (kRows + i) * of.c_stride + v * lanes);
  }
  const T* b = of.b;
  for (std::int64_t l = 0; l < of.k; ++l, b += of.b_stride) {
    for (int line = of.first_line; line < of.last_line; ++line) {
      PrefetchToSecondCache(reinterpret_cast<const std::byte*>(of.next_panel + l * kPanelColumns) + line * 64);
    }
    V row[kVectors];
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V factor = hn::Set(d, of.a[i * of.a_stride + l]);
      STEPNET_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
  }
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      T* const to = of.c + i * of.c_stride + v * lanes;
      if (v + 1 == kVectors && !is_whole) {
        hn::BlendedStore(sums[i][v], is_there, d, to);
      } else {
        hn::StoreU(sums[i][v], d, to);
      }
    }
  }
}

template <int kVectors, typename T>
HWY_INLINE void TileOfRows(int rows, const PanelOperands<T>& of, size_t last) {
  switch (rows) {
    case 1: return Tile<1, kVectors>(of, last);
    case 2: return Tile<2, kVectors>(of, last);
    case 3: return Tile<3, kVectors>(of, last);
    case 4: return Tile<4, kVectors>(of, last);
    case 5: return Tile<5, kVectors>(of, last);
    default: return Tile<kTileRows, kVectors>(of, last);
  }
}

// Rows are divided into tiles of about as many each.
template <int kVectors, typename T>
HWY_NOINLINE void Columns(std::int64_t m, PanelOperands<T> of, size_t last) {
  const std::int64_t tiles = (m + kTileRows - 1) / kTileRows;
  std::int64_t i = 0;
  for (std::int64_t tile = 1; tile <= tiles; ++tile) {
    const std::int64_t rows = m * tile / tiles - i;
    of.has_more = tile < tiles;
    if (of.next_panel != nullptr && tiles >= kMinTilesToFetch) {
      of.first_line = static_cast<int>(kLinesOfRow<T> * (tile - 1) / tiles);
      of.last_line = static_cast<int>(kLinesOfRow<T> * tile / tiles);
    }
    TileOfRows<kVectors>(static_cast<int>(rows), of, last);
    i += rows;
    of.a += rows * of.a_stride;
    of.c += rows * of.c_stride;
  }
}

// One row, eight vectors at a time: so many sums hide the latency of one multiplication behind the others. Four of them
// lie at `b`, the others at `next`.
template <typename T>
HWY_INLINE void Row(const PanelOperands<T>& of, const T* HWY_RESTRICT b, const T* HWY_RESTRICT next, std::int64_t at) {
  const Tag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* HWY_RESTRICT a = of.a;
  const auto start = [&](int v) HWY_ATTR {
    const auto from = of.accumulates ? hn::LoadU(d, of.c + at + v * lanes) : hn::Zero(d);
    return of.bias == nullptr ? from : hn::Add(from, hn::LoadU(d, of.bias + at + v * lanes));
  };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5), s6 = start(6),
       s7 = start(7);
  for (std::int64_t l = 0; l < of.k; ++l, b += of.b_stride, next += of.b_stride) {
    const auto factor = hn::Set(d, a[l]);
    s0 = hn::MulAdd(factor, hn::LoadU(d, b), s0);
    s1 = hn::MulAdd(factor, hn::LoadU(d, b + lanes), s1);
    s2 = hn::MulAdd(factor, hn::LoadU(d, b + 2 * lanes), s2);
    s3 = hn::MulAdd(factor, hn::LoadU(d, b + 3 * lanes), s3);
    s4 = hn::MulAdd(factor, hn::LoadU(d, next), s4);
    s5 = hn::MulAdd(factor, hn::LoadU(d, next + lanes), s5);
    s6 = hn::MulAdd(factor, hn::LoadU(d, next + 2 * lanes), s6);
    s7 = hn::MulAdd(factor, hn::LoadU(d, next + 3 * lanes), s7);
  }
  T* const c = of.c + at;
  hn::StoreU(s0, d, c);
  hn::StoreU(s1, d, c + lanes);
  hn::StoreU(s2, d, c + 2 * lanes);
  hn::StoreU(s3, d, c + 3 * lanes);
  hn::StoreU(s4, d, c + 4 * lanes);
  hn::StoreU(s5, d, c + 5 * lanes);
  hn::StoreU(s6, d, c + 6 * lanes);
  hn::StoreU(s7, d, c + 7 * lanes);
}

// One row times two whole panels.
template <typename T>
void MultiplyTwoPanels(const PanelOperands<T>& of) {
  const auto width = static_cast<std::int64_t>(8 * hn::Lanes(Tag<T>()));
  const T* const second = of.b + kPanelColumns * of.k;
  if (width == 2 * kPanelColumns) return Row(of, of.b, second, 0);
  for (std::int64_t at = 0; at < 2 * kPanelColumns; at += width) {
    const T* const b = at < kPanelColumns ? of.b + at : second + (at - kPanelColumns);
    Row(of, b, b + width / 2, at);
  }
}

// `columns` of one panel, or of one row two panels.
template <typename T>
void MultiplyColumns(std::int64_t m, std::int64_t columns, const PanelOperands<T>& operands) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag<T>()));
  PanelOperands<T> of = operands;
  if (columns == 2 * kPanelColumns) return MultiplyTwoPanels(of);
  while (columns > 0) {
    const std::int64_t width = std::min(columns, kTileVectors * lanes);
    const auto vectors = static_cast<int>((width + lanes - 1) / lanes);
    const auto last = static_cast<size_t>(width - (vectors - 1) * lanes);
    switch (vectors) {
      case 1: Columns<1>(m, of, last); break;
#if HWY_MAX_BYTES >= 64
      case 2: Columns<2>(m, of, last); break;
      case 3: Columns<3>(m, of, last); break;
#endif
      default: Columns<kTileVectors>(m, of, last); break;
    }
    columns -= width;
    of.b += width;
    of.c += width;
    if (of.bias != nullptr) of.bias += width;
  }
}

void MultiplyFloat(std::int64_t m, std::int64_t columns, const PanelOperands<float>& of) {
  MultiplyColumns(m, columns, of);
}
void MultiplyDouble(std::int64_t m, std::int64_t columns, const PanelOperands<double>& of) {
  MultiplyColumns(m, columns, of);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyDouble);

template <typename T>
void Multiply(std::int64_t m, std::int64_t columns, const PanelOperands<T>& of) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(MultiplyFloat)(m, columns, of);
  } else {
    HWY_DYNAMIC_DISPATCH(MultiplyDouble)(m, columns, of);
  }
}

// Columns of panel `panel`, with those that are zeros.
std::int64_t WidthOf(std::int64_t panel, std::int64_t n) {
  return std::min(kPanelColumns, NumPanelUnits(n) * kPanelUnit - panel * kPanelColumns);
}

// Nobody looks within a call whether the run shall stop, so it computes few rows of long sums: some milliseconds of
// work.
std::int64_t RowsOfCall(std::int64_t k) {
  constexpr std::int64_t kMaxRows = 252, kMaxProducts = 1 << 28;  // whole tiles
  return std::clamp(kMaxProducts / (kPanelColumns * std::max<std::int64_t>(k, 1)), std::int64_t{1}, kMaxRows);
}

}  // namespace

template <typename T>
void PackPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, std::int64_t first, std::int64_t last, T* panels) {
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t begin = panel * kPanelColumns, width = WidthOf(panel, n);
    const std::int64_t columns = std::min(width, n - begin);
    T* const to = panels + begin * k;
    CountWork(width * k);
    if (b.transposed) {
      TransposeMatrix(columns, k, b.data + begin * b.stride, b.stride, to, width);
    } else {
      for (std::int64_t l = 0; l < k; ++l) std::copy_n(b.data + l * b.stride + begin, columns, to + l * width);
    }
    for (std::int64_t l = 0; columns < width && l < k; ++l)
      std::fill(to + l * width + columns, to + (l + 1) * width, T{0});
  }
}

template <typename T>
void PanelProduct(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t begin, std::int64_t end, const T* a,
                  std::int64_t a_stride, const T* panels, T* c, std::int64_t c_stride, bool accumulates,
                  const T* bias) {
  constexpr std::int64_t kProductsOfWork = 16;
  const std::int64_t max_rows = RowsOfCall(k);
  for (std::int64_t i = 0; i < m; i += max_rows) {
    const std::int64_t rows = std::min(max_rows, m - i);
    for (std::int64_t j = begin; j < end;) {
      const std::int64_t panel = j / kPanelColumns, first = panel * kPanelColumns;
      const bool are_two = m == 1 && j == first && end - j >= 2 * kPanelColumns;
      const std::int64_t next = std::min(end, first + (are_two ? 2 : 1) * kPanelColumns);
      CountWork(rows * (next - j) * k / kProductsOfWork);
      Multiply<T>(rows, next - j,
                  {.k = k,
                   .a = a + i * a_stride,
                   .a_stride = a_stride,
                   .b = panels + first * k + (j - first),
                   .b_stride = WidthOf(panel, n),
                   .c = c + i * c_stride + j,
                   .c_stride = c_stride,
                   .bias = bias == nullptr ? nullptr : bias + j,
                   .accumulates = accumulates,
                   .has_more = false,
                   .next_panel = next < end && next % kPanelColumns == 0 ? panels + next * k : nullptr,
                   .first_line = 0,
                   .last_line = 0});
      j = next;
    }
  }
}

template void PackPanels(std::int64_t, std::int64_t, MatrixView<float>, std::int64_t, std::int64_t, float*);
template void PackPanels(std::int64_t, std::int64_t, MatrixView<double>, std::int64_t, std::int64_t, double*);
template void PanelProduct(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*,
                           std::int64_t, const float*, float*, std::int64_t, bool, const float*);
template void PanelProduct(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const double*,
                           std::int64_t, const double*, double*, std::int64_t, bool, const double*);

}  // namespace stepnet
#endif  // HWY_ONCE
