// PanelProduct: products with a matrix that was laid out for them, as weights are that steps read again and again.
//
// Each element is one sum, whose terms are added in their order. So its bits depend on nothing but its own terms: not
// on how many rows and columns a call computes, nor on threads or the width of vectors, where a multiplication and an
// addition are one instruction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/target.h"
#include "stepnet/core/tensor.h"
#include "stepnet/products/gemm.h"

namespace stepnet {

// Calls begin and end between units of so many columns, or at the end.
inline constexpr std::int64_t kPanelUnit = kFloatsOfLine;
constexpr std::int64_t NumPanelUnits(std::int64_t n) { return (n + kPanelUnit - 1) / kPanelUnit; }

// Columns are laid out in panels: K rows of a panel one after the other, then the next panel. Panels have three units,
// which tiles of most rows compute together, but the last ones two, so that none is left over; one unit is a panel.
// Behind the columns that there are the last unit has zeros.
inline constexpr std::int64_t kMaxPanelColumns = 3 * kPanelUnit;
constexpr std::int64_t NumPanels(std::int64_t n) { return (NumPanelUnits(n) + 2) / 3; }
constexpr std::int64_t NumWidePanels(std::int64_t n) {
  return std::max<std::int64_t>(NumPanelUnits(n) - 2 * NumPanels(n), 0);
}
// The first column of panel `panel`; of the one behind the last panel, the end.
constexpr std::int64_t BeginOfPanel(std::int64_t panel, std::int64_t n) {
  return std::min(2 * panel + std::min(panel, NumWidePanels(n)), NumPanelUnits(n)) * kPanelUnit;
}
constexpr std::int64_t PanelOfColumn(std::int64_t column, std::int64_t n) {
  const std::int64_t unit = column / kPanelUnit, wide = NumWidePanels(n);
  return unit < 3 * wide ? unit / 3 : wide + (unit - 3 * wide) / 2;
}
// Elements of B [K, N] in panels.
constexpr std::int64_t PanelElements(std::int64_t n, std::int64_t k) { return NumPanelUnits(n) * kPanelUnit * k; }

// Lays out panels [first, last) of B [K, N]; `panels` is where all of them lie. T is float, double or BFloat16.
template <typename T>
void PackPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, std::int64_t first, std::int64_t last, T* panels);

// Some rows and columns of B.
struct PanelPart {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};
// The same of a part of B alone, which `b` is.
template <typename T>
void PackPartOfPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, const PanelPart& part, std::int64_t first,
                      std::int64_t last, T* panels);

// Columns [begin, end) of each group of a product's n columns, of `group` each. REQUIRES: they begin and end between
// units, or at the end of n; n is a multiple of `group`.
struct PanelColumns {
  std::int64_t n = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t group = 0;
  bool from_last = false;  // the last ones are computed first
};

// These columns of C [M, N] = A [M, K] B, plus C when `accumulates`, plus bias [N] in every row where it is not null. A
// and C are row-major with so many elements from row to row. Unless accumulated to, C is not read. Sizes may be 0.
// Panels are of T or, where that is float, of BFloat16: those give the bits of the floats that they are. REQUIRES: C
// overlaps no input.
template <typename T, typename W>
void PanelProduct(std::int64_t m, const PanelColumns& columns, std::int64_t k, const T* a, std::int64_t a_stride,
                  const W* panels, T* c, std::int64_t c_stride, bool accumulates = false, const T* bias = nullptr);

}  // namespace stepnet
