// How products with weights, and sums over their rows, are cut in parts whose bits do not depend on that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/op_run.h"
#include "stepnet/core/target.h"
#include "stepnet/products/panel_product.h"

namespace stepnet {

// Into how many parts a product is worth to be cut whose bits do not depend on that.
inline int NumUnitParts(std::int64_t n, std::int64_t k) {
  const std::int64_t units = NumPanelUnits(n);
  return static_cast<int>(std::clamp<std::int64_t>(units * kPanelUnit * k / kCpuTarget.min_part_weights, 1,
                                                   std::max<std::int64_t>(units, 1)));
}

// The run's share of n columns: some of all, or of each group (OpRun::units).
inline PanelColumns ShareOfColumns(const OpRun& run, std::int64_t n) {
  static_assert(kPanelUnit == OpRun::kUnitsOfPart);
  const std::int64_t group = run.units() > 0 ? run.units() : n;
  const auto [begin, end] = OpRun::ShareOfUnits(group, run.part(), run.parts());
  return {.n = n, .begin = begin, .end = end, .group = group};
}

// Sums columns [begin, end) of m rows, with `stride` elements from one to the next, row by row.
template <typename T>
void SumRows(const T* rows, std::int64_t m, std::int64_t stride, std::int64_t begin, std::int64_t end, T* sum,
             bool adds) {
  constexpr std::int64_t kRows = 4;  // for each time that a sum is read and written
  if (!adds) std::fill(sum + begin, sum + end, T{0});
  std::int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    CountWork(kRows * (end - begin));
    const T *a = rows + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    for (std::int64_t j = begin; j < end; ++j) sum[j] = sum[j] + a[j] + b[j] + c[j] + d[j];
  }
  for (; i < m; ++i) {
    CountWork(end - begin);
    for (std::int64_t j = begin; j < end; ++j) sum[j] += rows[i * stride + j];
  }
}

}  // namespace stepnet
