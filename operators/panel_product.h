// PanelProduct: products with a matrix that was laid out for them, as weights are that steps read again and again.
//
// Each element is one sum, whose terms are added in their order. So its bits depend on nothing but its own terms: not
// on how many rows and columns a call computes, nor on threads or the width of vectors, where a multiplication and an
// addition are one instruction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/tensor.h"
#include "stepnet/operators/gemm.h"

namespace stepnet {

// Columns are laid out in panels of so many: K rows of a panel one after the other, then the next panel. The last one
// is as narrow as it can be, in whole units, with zeros behind the columns that there are.
inline constexpr std::int64_t kPanelColumns = 64;
// Calls begin and end between units, or at the end.
inline constexpr std::int64_t kPanelUnit = 16;

constexpr std::int64_t NumPanels(std::int64_t n) { return (n + kPanelColumns - 1) / kPanelColumns; }
constexpr std::int64_t NumPanelUnits(std::int64_t n) { return (n + kPanelUnit - 1) / kPanelUnit; }
// Elements of B [K, N] in panels.
constexpr std::int64_t PanelElements(std::int64_t n, std::int64_t k) { return NumPanelUnits(n) * kPanelUnit * k; }

// Lays out panels [first, last) of B [K, N]; `panels` is where all of them lie. T is float, double or BFloat16.
template <typename T>
void PackPanels(std::int64_t n, std::int64_t k, MatrixView<T> b, std::int64_t first, std::int64_t last, T* panels);

// Columns [begin, end) of each group of a product's n columns, of `group` each. REQUIRES: they begin and end between
// units, or at the end of n; n is a multiple of `group`.
struct PanelColumns {
  std::int64_t n = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t group = 0;
};

// These columns of C [M, N] = A [M, K] B, plus C when `accumulates`, plus bias [N] in every row where it is not null. A
// and C are row-major with so many elements from row to row. Unless accumulated to, C is not read. Sizes may be 0.
// Panels are of T or, where that is float, of BFloat16: those give the bits of the floats that they are. REQUIRES: C
// overlaps no input.
template <typename T, typename W>
void PanelProduct(std::int64_t m, const PanelColumns& columns, std::int64_t k, const T* a, std::int64_t a_stride,
                  const W* panels, T* c, std::int64_t c_stride, bool accumulates = false, const T* bias = nullptr);

}  // namespace stepnet
