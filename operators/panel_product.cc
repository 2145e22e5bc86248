#include "stepnet/operators/panel_product.h"

#include <cstddef>
#include <type_traits>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/target.h"
#include "stepnet/core/unroll.h"
#include "stepnet/operators/transpose_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/panel_product.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/half_vectors-inl.h"

#ifndef STEPNET_PANEL_OPERANDS
#define STEPNET_PANEL_OPERANDS

namespace stepnet {
namespace {

// What a product reads and writes, from its first row and column on: of T, and panels of W.
template <typename T, typename W>
struct PanelOperands {
  std::int64_t m, k;
  const T* a;
  std::int64_t a_stride;
  const W* panels;
  T* c;
  std::int64_t c_stride;
  const T* bias;  // or null
  bool accumulates;
};

// Columns of panel `panel`, with those that are zeros.
inline std::int64_t WidthOfPanel(std::int64_t panel, std::int64_t n) {
  return std::min(kPanelColumns, NumPanelUnits(n) * kPanelUnit - panel * kPanelColumns);
}

// How many lines of the cache a row of a panel has.
template <typename W>
constexpr int kLinesOfRow = kPanelColumns* static_cast<int>(sizeof(W)) / 64;

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

HWY_INLINE void PrefetchToSecondCache(const void* data) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(data, 0, 2);
#else
  static_cast<void>(data);
#endif
}

// Vectors of a tile of one row: so many sums hide the latency of one multiplication behind the others.
constexpr int kRowVectors = 8;

// What a tile reads and writes beside A: vectors of columns, wherever they lie.
template <typename W>
struct Vectors {
  const W* b[kRowVectors];
  std::int64_t b_stride;
  std::int64_t column[kRowVectors];  // of C
  size_t last = 0;                   // columns that the last vector has
  bool has_more = false;             // rows of C behind these come next
  // The panel that comes next, or null: tiles fetch lines [first_line, last_line) of each of its rows into the second
  // cache.
  const W* next_panel = nullptr;
  int first_line = 0, last_line = 0;
};

template <int kRows, int kVectors, typename T, typename W>
HWY_INLINE void Tile(const PanelOperands<T, W>& of, std::int64_t row, const Vectors<W>& at) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const auto is_there = hn::FirstN(d, at.last);
  const bool is_whole = at.last == hn::Lanes(d);
  const auto load = [&](const T* from, int v) HWY_ATTR {
    return v + 1 == kVectors && !is_whole ? hn::MaskedLoad(is_there, d, from) : hn::LoadU(d, from);
  };
  T* const c = of.c + row * of.c_stride;
  V sums[kRows][kVectors];
  STEPNET_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) {
      sums[i][v] = of.accumulates ? load(c + i * of.c_stride + at.column[v], v) : hn::Zero(d);
      if (of.bias != nullptr) sums[i][v] = hn::Add(sums[i][v], load(of.bias + at.column[v], v));
    }
  }
  const bool reads_more = of.accumulates && at.has_more;
  STEPNET_UNROLL
  for (int i = 0; i < kRows && reads_more; ++i) {  // what the next tile begins with may be far away
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(c + (kRows + i) * of.c_stride + at.column[v]);
  }
  const T* HWY_RESTRICT a = of.a + row * of.a_stride;
  const W* b[kVectors];
  STEPNET_UNROLL
  for (int v = 0; v < kVectors; ++v) b[v] = at.b[v];
  for (std::int64_t l = 0, offset = 0; l < of.k; ++l, offset += at.b_stride) {
    for (int line = at.first_line; line < at.last_line; ++line) {
      PrefetchToSecondCache(reinterpret_cast<const std::byte*>(at.next_panel + l * kPanelColumns) + line * 64);
    }
    V factors[kVectors];
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) factors[v] = LoadElements(d, b[v] + offset);
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const V factor = hn::Set(d, a[i * of.a_stride + l]);
      STEPNET_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, factors[v], sums[i][v]);
    }
  }
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + i * of.c_stride + at.column[v];
      if (v + 1 == kVectors && !is_whole) {
        hn::BlendedStore(sums[i][v], is_there, d, to);
      } else {
        hn::StoreU(sums[i][v], d, to);
      }
    }
  }
}

template <int kVectors, typename T, typename W>
HWY_INLINE void TileOfRows(int rows, const PanelOperands<T, W>& of, std::int64_t row, const Vectors<W>& at) {
  switch (rows) {
    case 1: return Tile<1, kVectors>(of, row, at);
    case 2: return Tile<2, kVectors>(of, row, at);
    case 3: return Tile<3, kVectors>(of, row, at);
    case 4: return Tile<4, kVectors>(of, row, at);
    case 5: return Tile<5, kVectors>(of, row, at);
    default: return Tile<kTileRows, kVectors>(of, row, at);
  }
}

// All rows, divided into tiles of about as many each.
template <int kVectors, typename T, typename W>
HWY_NOINLINE void Columns(const PanelOperands<T, W>& of, Vectors<W> at) {
  const std::int64_t tiles = (of.m + kTileRows - 1) / kTileRows;
  const bool fetches = at.next_panel != nullptr && tiles >= kCpuTarget.min_tiles_to_fetch;
  std::int64_t row = 0;
  for (std::int64_t tile = 1; tile <= tiles; ++tile) {
    const std::int64_t end = of.m * tile / tiles;
    at.has_more = tile < tiles;
    at.first_line = fetches ? static_cast<int>(kLinesOfRow<W> * (tile - 1) / tiles) : 0;
    at.last_line = fetches ? static_cast<int>(kLinesOfRow<W> * tile / tiles) : 0;
    TileOfRows<kVectors>(static_cast<int>(end - row), of, row, at);
    row = end;
  }
}

// Columns [begin, end) of each group, as many vectors at a time as a tile has, also of several groups.
template <typename T, typename W>
class ColumnsInTiles {
 public:
  explicit ColumnsInTiles(const PanelOperands<T, W>& of)
      : of_(of), lanes_(static_cast<std::int64_t>(hn::Lanes(Tag<T>()))), max_(of.m == 1 ? kRowVectors : kTileVectors) {}

  void Run(const PanelColumns& columns) {
    for (std::int64_t first = 0; first < columns.n; first += columns.group) {
      const std::int64_t end = first + columns.end;
      for (std::int64_t j = first + columns.begin; j < end; j += lanes_) {
        const std::int64_t panel = j / kPanelColumns;
        Add(panel, WidthOfPanel(panel, columns.n), j, std::min(lanes_, end - j));
        const bool ends_panel = (j + lanes_) % kPanelColumns == 0;
        if (ends_panel && j + lanes_ < end) at_.next_panel = of_.panels + (j + lanes_) * of_.k;
      }
    }
    Multiply();
  }

 private:
  void Add(std::int64_t panel, std::int64_t width, std::int64_t column, std::int64_t count) {
    // Whole vectors of rows of one length are multiplied together.
    if (count_ == max_ || (count_ > 0 && (width != at_.b_stride || count < lanes_))) Multiply();
    at_.b[count_] = of_.panels + panel * kPanelColumns * of_.k + (column - panel * kPanelColumns);
    at_.b_stride = width;
    at_.column[count_++] = column;
    at_.last = static_cast<size_t>(count);
  }

  void Multiply() {
    const int count = std::exchange(count_, 0);
    of_.m == 1 ? MultiplyRow(count) : MultiplyRows(count);
    at_.next_panel = nullptr;
  }

  void MultiplyRow(int count) const {
    switch (count) {
      case 0: return;
      case 1: return Tile<1, 1>(of_, 0, at_);
      case 2: return Tile<1, 2>(of_, 0, at_);
      case 3: return Tile<1, 3>(of_, 0, at_);
      case 4: return Tile<1, 4>(of_, 0, at_);
      case 5: return Tile<1, 5>(of_, 0, at_);
      case 6: return Tile<1, 6>(of_, 0, at_);
      case 7: return Tile<1, 7>(of_, 0, at_);
      default: return Tile<1, kRowVectors>(of_, 0, at_);
    }
  }

  void MultiplyRows(int count) const {
    switch (count) {
      case 0: return;
      case 1: return Columns<1>(of_, at_);
#if HWY_MAX_BYTES >= 64
      case 2: return Columns<2>(of_, at_);
      case 3: return Columns<3>(of_, at_);
#endif
      default: return Columns<kTileVectors>(of_, at_);
    }
  }

  const PanelOperands<T, W>& of_;
  const std::int64_t lanes_;
  const int max_;
  Vectors<W> at_ = {};
  int count_ = 0;
};

void MultiplyFloat(const PanelColumns& columns, const PanelOperands<float, float>& of) {
  ColumnsInTiles<float, float>(of).Run(columns);
}
void MultiplyBFloat16(const PanelColumns& columns, const PanelOperands<float, BFloat16>& of) {
  ColumnsInTiles<float, BFloat16>(of).Run(columns);
}
void MultiplyDouble(const PanelColumns& columns, const PanelOperands<double, double>& of) {
  ColumnsInTiles<double, double>(of).Run(columns);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyBFloat16);
HWY_EXPORT(MultiplyDouble);

template <typename T, typename W>
void Multiply(const PanelColumns& columns, const PanelOperands<T, W>& of) {
  if constexpr (std::is_same_v<W, BFloat16>) {
    HWY_DYNAMIC_DISPATCH(MultiplyBFloat16)(columns, of);
  } else if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(MultiplyFloat)(columns, of);
  } else {
    HWY_DYNAMIC_DISPATCH(MultiplyDouble)(columns, of);
  }
}

// Nobody looks within a call whether the run shall stop: it computes columns that are some milliseconds of work, a
// panel at least.
std::int64_t ColumnsOfCall(std::int64_t m, std::int64_t k) {
  constexpr std::int64_t kMaxProducts = 1 << 28;
  const std::int64_t columns = kMaxProducts / std::max<std::int64_t>(m * k, 1);
  return std::max(columns / kPanelColumns, std::int64_t{1}) * kPanelColumns;
}

template <typename T>
void Transpose(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
               std::int64_t y_stride) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    TransposeMatrix(rows, columns, reinterpret_cast<const std::uint16_t*>(x), x_stride,
                    reinterpret_cast<std::uint16_t*>(y), y_stride);
  } else {
    TransposeMatrix(rows, columns, x, x_stride, y, y_stride);
  }
}

}  // namespace

template <typename T>
void PackPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, std::int64_t first, std::int64_t last, T* panels) {
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t begin = panel * kPanelColumns, width = WidthOfPanel(panel, n);
    const std::int64_t columns = std::min(width, n - begin);
    T* const to = panels + begin * k;
    CountWork(width * k);
    if (b.transposed) {
      Transpose(columns, k, b.data + begin * b.stride, b.stride, to, width);
    } else {
      for (std::int64_t l = 0; l < k; ++l) std::copy_n(b.data + l * b.stride + begin, columns, to + l * width);
    }
    for (std::int64_t l = 0; columns < width && l < k; ++l)
      std::fill(to + l * width + columns, to + (l + 1) * width, T{});
  }
}

template <typename T, typename W>
void PanelProduct(std::int64_t m, const PanelColumns& columns, std::int64_t k, const T* a, std::int64_t a_stride,
                  const W* panels, T* c, std::int64_t c_stride, bool accumulates, const T* bias) {
  if (m == 0 || columns.n == 0) return;
  static constexpr W kNothing[kPanelColumns] = {};
  if (k == 0) panels = kNothing;  // sums of no terms, of panels that are nowhere
  const std::int64_t max_columns = ColumnsOfCall(m * (columns.n / columns.group), k);
  for (std::int64_t begin = columns.begin; begin < columns.end; begin += max_columns) {
    PanelColumns some = columns;
    some.begin = begin;
    some.end = std::min(columns.end, begin + max_columns);
    CountWork(m * (some.end - some.begin) * (some.n / some.group) * k / kProductsOfWork);
    Multiply<T, W>(some, {.m = m,
                          .k = k,
                          .a = a,
                          .a_stride = a_stride,
                          .panels = panels,
                          .c = c,
                          .c_stride = c_stride,
                          .bias = bias,
                          .accumulates = accumulates});
  }
}

template void PackPanels(std::int64_t, std::int64_t, MatrixView<float>, std::int64_t, std::int64_t, float*);
template void PackPanels(std::int64_t, std::int64_t, MatrixView<BFloat16>, std::int64_t, std::int64_t, BFloat16*);
template void PackPanels(std::int64_t, std::int64_t, MatrixView<double>, std::int64_t, std::int64_t, double*);
template void PanelProduct(std::int64_t, const PanelColumns&, std::int64_t, const float*, std::int64_t, const float*,
                           float*, std::int64_t, bool, const float*);
template void PanelProduct(std::int64_t, const PanelColumns&, std::int64_t, const float*, std::int64_t, const BFloat16*,
                           float*, std::int64_t, bool, const float*);
template void PanelProduct(std::int64_t, const PanelColumns&, std::int64_t, const double*, std::int64_t, const double*,
                           double*, std::int64_t, bool, const double*);

}  // namespace stepnet
#endif  // HWY_ONCE
