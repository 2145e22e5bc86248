#include "stepnet/products/panel_product.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/target.h"
#include "stepnet/core/unroll.h"
#include "stepnet/products/transpose_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/panel_product.cc"
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

// A tile is computed in registers: its sums, and beside them a row of B and an element of A. Each tile of rows reads B
// again, from a slower cache than A. So tiles are as high as they can be, as long as they do not read A too often: on a
// core of a Xeon of 179 GFLOP/s, 16 rows times B [512, 2048] reach 152 GFLOP/s in tiles of 8 x 3 vectors, 118 in 6 x 4,
// 123 in 14 x 2. Few rows have wider tiles, as one sum after the other would wait for a multiplication.
#if HWY_MAX_BYTES >= 64
constexpr int kRegisters = 32;
constexpr int kTileVectors = 3, kLastTileVectors = 4;  // the last one leaves no single vector over
constexpr int kFewRowsVectors = 6, kOneRowVectors = 6;
#else
constexpr int kRegisters = 16;
constexpr int kTileVectors = 2, kLastTileVectors = 2;
constexpr int kFewRowsVectors = 3, kOneRowVectors = 6;
#endif
constexpr int kFewRows = 3;
constexpr int kMaxVectors = kOneRowVectors;

// The most rows of a tile of so many vectors.
constexpr int TileRows(int vectors) {
  if (vectors > kFewRowsVectors) return 1;
  return vectors > kLastTileVectors ? kFewRows : std::min((kRegisters - 1 - vectors) / vectors, 8);
}

HWY_INLINE void PrefetchToSecondCache(const void* data) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(data, 0, 2);
#else
  static_cast<void>(data);
#endif
}

// What a tile reads and writes beside A: vectors of columns, wherever they lie.
template <typename W>
struct Vectors {
  int count = 0;
  const W* b[kMaxVectors];
  std::int64_t b_stride = 0;
  std::int64_t column[kMaxVectors];  // of C
  std::int64_t last = 0;             // columns that the last vector has
};

// Lines of B that come next, in each row of B, which a tile fetches into the second cache meanwhile.
template <typename W>
struct NextLines {
  int count = 0;
  const W* lines[kMaxVectors];
  std::int64_t stride = 0;

  // Fetches them in rows [first, last) of B.
  HWY_INLINE void Fetch(std::int64_t first, std::int64_t last) const {
    for (int line = 0; line < count; ++line) {
      for (std::int64_t l = first; l < last; ++l) PrefetchToSecondCache(lines[line] + l * stride);
    }
  }
};

// A function of its own: inlined, addresses would be kept in vector registers.
template <int kRows, int kVectors, typename T, typename W>
HWY_NOINLINE void Tile(const PanelOperands<T, W>& of, std::int64_t row, const Vectors<W>& at, const NextLines<W>& next,
                       bool has_more_rows) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const bool is_whole = at.last == static_cast<std::int64_t>(hn::Lanes(d));
  const auto load = [&](const T* from, int v) HWY_ATTR {
    return v + 1 == kVectors && !is_whole ? LoadPart(d, from, at.last) : hn::LoadU(d, from);
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
  const bool reads_more = of.accumulates && has_more_rows;
  STEPNET_UNROLL
  for (int i = 0; i < kRows && reads_more; ++i) {  // what the next tile begins with may be far away
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(c + (kRows + i) * of.c_stride + at.column[v]);
  }
  const T* HWY_RESTRICT a = of.a + row * of.a_stride;
  const W* b[kVectors];
  STEPNET_UNROLL
  for (int v = 0; v < kVectors; ++v) b[v] = at.b[v];
  const std::int64_t terms = next.count > 0 ? kCpuTarget.rows_between_fetches : of.k;
  for (std::int64_t l = 0, offset = 0; l < of.k;) {
    const std::int64_t end = std::min(l + terms, of.k);
    next.Fetch(l, end);
    for (; l < end; ++l, offset += at.b_stride) {
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
  }
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + i * of.c_stride + at.column[v];
      if (v + 1 == kVectors && !is_whole) {
        StorePart(d, sums[i][v], to, at.last);
      } else {
        hn::StoreU(sums[i][v], d, to);
      }
    }
  }
}

template <int kRows, int kVectors, typename T, typename W>
HWY_INLINE void TileOfRows(int rows, const PanelOperands<T, W>& of, std::int64_t row, const Vectors<W>& at,
                           const NextLines<W>& next, bool has_more_rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileOfRows<kRows - 1, kVectors>(rows, of, row, at, next, has_more_rows);
  }
  Tile<kRows, kVectors>(of, row, at, next, has_more_rows);
}

// All rows, divided into tiles of about as many each, of which each fetches some of the next lines.
template <int kVectors, typename T, typename W>
HWY_INLINE void AllRows(const PanelOperands<T, W>& of, const Vectors<W>& at, const NextLines<W>& next) {
  constexpr int kRows = TileRows(kVectors);
  if (of.m <= kRows) return TileOfRows<kRows, kVectors>(static_cast<int>(of.m), of, 0, at, next, false);
  const std::int64_t tiles = (of.m + kRows - 1) / kRows;
  std::int64_t row = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t end = of.m * (tile + 1) / tiles;
    const std::int64_t first = next.count * tile / tiles;
    NextLines<W> some = {.stride = next.stride};
    for (std::int64_t line = first; line < next.count * (tile + 1) / tiles; ++line)
      some.lines[some.count++] = next.lines[line];
    TileOfRows<kRows, kVectors>(static_cast<int>(end - row), of, row, at, some, tile + 1 < tiles);
    row = end;
  }
}

// Columns [begin, end) of each group, as many vectors at a time as a tile has, also of several groups.
template <typename T, typename W>
class ColumnsInTiles {
 public:
  explicit ColumnsInTiles(const PanelOperands<T, W>& of)
      : of_(of), lanes_(static_cast<std::int64_t>(hn::Lanes(Tag<T>()))) {}

  void Run(const PanelColumns& columns) {
    const std::int64_t groups = columns.n / columns.group;
    const std::int64_t vectors = (columns.end - columns.begin + lanes_ - 1) / lanes_;  // of a group
    left_ = groups * vectors;
    max_ = VectorsOfTile();
    const std::int64_t to_next_group = columns.from_last ? -columns.group : columns.group;
    const std::int64_t to_next = columns.from_last ? -lanes_ : lanes_;
    std::int64_t first = columns.from_last ? columns.n - columns.group : 0;  // of the group
    std::int64_t panel_begin = 0, panel_end = 0;
    for (std::int64_t i = 0; i < groups; ++i, first += to_next_group) {
      std::int64_t j = first + columns.begin + (columns.from_last ? (vectors - 1) * lanes_ : 0);
      for (std::int64_t v = 0; v < vectors; ++v, j += to_next) {
        if (j < panel_begin || j >= panel_end) {
          const std::int64_t panel = PanelOfColumn(j, columns.n);
          panel_begin = BeginOfPanel(panel, columns.n);
          panel_end = BeginOfPanel(panel + 1, columns.n);
        }
        Add(of_.panels + panel_begin * of_.k + (j - panel_begin), panel_end - panel_begin, j,
            std::min(lanes_, first + columns.end - j));
      }
    }
    Multiply();
    Multiply();
  }

 private:
  // How many the next tile has at most.
  int VectorsOfTile() const {
    if (of_.m == 1) return kOneRowVectors;
    if (of_.m <= kFewRows) return kFewRowsVectors;
    return left_ == kLastTileVectors ? kLastTileVectors : kTileVectors;
  }

  void Add(const W* b, std::int64_t width, std::int64_t column, std::int64_t count) {
    // Whole vectors of rows of one length are multiplied together.
    const bool are_whole = count == lanes_ && next_->last == lanes_;
    if (next_->count == max_ || (next_->count > 0 && (width != next_->b_stride || !are_whole))) {
      Multiply();
      max_ = VectorsOfTile();
    }
    next_->b[next_->count] = b;
    next_->b_stride = width;
    next_->column[next_->count++] = column;
    next_->last = count;
    --left_;
  }

  // Multiplies the vectors before the next ones, which are known by then.
  void Multiply() {
    NextLines<W> next = {.stride = next_->b_stride};
    for (int v = 0; v < next_->count && of_.m >= kCpuTarget.min_rows_to_fetch; ++v) {
      const bool begins_line = v == 0 || reinterpret_cast<std::uintptr_t>(next_->b[v]) % kLineBytes == 0;
      if (begins_line) next.lines[next.count++] = next_->b[v];
    }
    MultiplyVectors<kMaxVectors>(*at_, next);
    std::swap(at_, next_);
    next_->count = 0;
  }

  template <int kVectors>
  void MultiplyVectors(const Vectors<W>& at, const NextLines<W>& next) const {
    if constexpr (kVectors > 0) {
      if (at.count < kVectors) return MultiplyVectors<kVectors - 1>(at, next);
      AllRows<kVectors>(of_, at, next);
    }
  }

  const PanelOperands<T, W>& of_;
  const std::int64_t lanes_;
  std::int64_t left_ = 0;  // vectors
  int max_ = 0;
  Vectors<W> vectors_[2];
  Vectors<W>*at_ = &vectors_[0], *next_ = &vectors_[1];
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
  return std::max(columns / kMaxPanelColumns, std::int64_t{1}) * kMaxPanelColumns;
}

}  // namespace

template <typename T>
void PackPartOfPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, const PanelPart& part, std::int64_t first,
                      std::int64_t last, T* panels) {
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t begin_of_panel = BeginOfPanel(panel, n), width = BeginOfPanel(panel + 1, n) - begin_of_panel;
    const std::int64_t begin = std::max(begin_of_panel, part.column);
    const std::int64_t end = std::min(begin_of_panel + width, part.column + part.columns), columns = end - begin;
    if (columns <= 0 || part.rows == 0) continue;  // b may be null then
    const T* const from = b.From(0, begin - part.column).data;
    T* const to = panels + begin_of_panel * k + part.row * width + (begin - begin_of_panel);
    CountWork(columns * part.rows);
    if (b.transposed) {
      TransposeMatrix(columns, part.rows, from, b.stride, to, width);
    } else {
      for (std::int64_t l = 0; l < part.rows; ++l) std::copy_n(from + l * b.stride, columns, to + l * width);
    }
    const std::int64_t behind = end == n ? begin_of_panel + width - n : 0;  // of the last unit
    for (std::int64_t l = 0; behind > 0 && l < part.rows; ++l) std::fill_n(to + l * width + columns, behind, T{});
  }
}

template <typename T>
void PackPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, std::int64_t first, std::int64_t last, T* panels) {
  PackPartOfPanels(n, k, b, {.rows = k, .columns = n}, first, last, panels);
}

template <typename T, typename W>
void PanelProduct(std::int64_t m, const PanelColumns& columns, std::int64_t k, const T* a, std::int64_t a_stride,
                  const W* panels, T* c, std::int64_t c_stride, bool accumulates, const T* bias) {
  if (m == 0 || columns.n == 0) return;
  static constexpr W kNothing[kMaxPanelColumns] = {};
  if (k == 0) panels = kNothing;  // sums of no terms, of panels that are nowhere
  const std::int64_t max_columns = ColumnsOfCall(m * (columns.n / columns.group), k);
  const std::int64_t size = columns.end - columns.begin;
  const std::int64_t calls =
      size <= max_columns ? 1 : (size + max_columns - 1) / max_columns;  // small ones take no longer
  for (std::int64_t call = 0; call < calls; ++call) {
    PanelColumns some = columns;
    some.begin += (columns.from_last ? calls - 1 - call : call) * max_columns;
    some.end = std::min(columns.end, some.begin + max_columns);
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

template void PackPartOfPanels(std::int64_t, std::int64_t, MatrixView<float>, const PanelPart&, std::int64_t,
                               std::int64_t, float*);
template void PackPartOfPanels(std::int64_t, std::int64_t, MatrixView<double>, const PanelPart&, std::int64_t,
                               std::int64_t, double*);
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
