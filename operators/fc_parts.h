// Products of rows with weights, one or several side by side, and sums over rows: all are cut in parts whose bits do
// not depend on that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/op_run.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/target.h"
#include "stepnet/core/weights_order.h"
#include "stepnet/products/gemm.h"
#include "stepnet/products/gemv.h"
#include "stepnet/products/panel_product.h"
#include "stepnet/products/stored_weights.h"

namespace stepnet {

// A product of x [M, K] with weights that give N columns.
struct FCSizes {
  std::int64_t m, k, n;
};

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
  return {.n = n, .begin = begin, .end = end, .group = group, .from_last = ReadsFromLast(run.step())};
}

// Whether weights are to be laid in panels. `is_of_rows`: one row is multiplied with weights that lie by rows, each of
// which gives an element, so that many of them are fast as they are.
inline bool ArePanelsFaster(const ShapeQuery& query, const FCSizes& sizes, bool is_of_rows) {
  const Target& target = *query.op().options().target;
  // Weights that are stored as less count as floats, so that the same products pack: others round otherwise.
  const std::int64_t bytes = sizes.n * sizes.k * DTypeBytes(query.In(0).dtype);
  return sizes.m <= target.max_rows_to_pack && !(is_of_rows && bytes > target.max_bytes_to_pack_for_row);
}

// One row and weights that lie by rows: the run's share of the columns, in blocks that are read from the first row to
// the last, whichever block comes first.
template <typename T, typename PartOf>
void MultiplyRowByParts(const OpRun& run, const FCSizes& sizes, int num_parts, const PartOf& part_of, const T* x, T* y,
                        const T* b) {
  const PanelColumns columns = ShareOfColumns(run, sizes.n);
  if (columns.begin >= columns.end) return;
  CountWork((columns.end - columns.begin) * (columns.n / columns.group) * sizes.k / kProductsOfWork);
  const std::int64_t size =
      std::max<std::int64_t>(kCpuTarget.block_elements_of_row / std::max<std::int64_t>(sizes.k, 1), 1);
  const std::int64_t blocks_of_group = (columns.end - columns.begin + size - 1) / size;
  const std::int64_t blocks = columns.n / columns.group * blocks_of_group;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t block = columns.from_last ? blocks - 1 - i : i, group = block / blocks_of_group * columns.group;
    const std::int64_t first = group + columns.begin + block % blocks_of_group * size;
    const std::int64_t last = std::min(first + size, group + columns.end);
    std::int64_t column = 0;  // of the part
    for (int p = 0; p < num_parts; ++p) {
      const auto part = part_of(p);
      const std::int64_t begin = std::max(first, column), end = std::min(last, column + part.n);
      if (begin < end) {
        GemvOfRows(end - begin, sizes.k, x, part.matrix.From(0, begin - column).data, sizes.k, y + begin, run.Adds(0),
                   b == nullptr ? b : b + begin);
      }
      column += part.n;
    }
  }
}

// Several rows: the run's share of the blocks of all parts.
template <typename T, typename PartOf>
void MultiplyRowsByParts(const OpRun& run, const FCSizes& sizes, int num_parts, const PartOf& part_of, const T* x, T* y,
                         const T* b) {
  const auto [m, k, n] = sizes;
  std::int64_t all_blocks = 0;
  for (int i = 0; i < num_parts; ++i) all_blocks += BlocksOfGemm(m, part_of(i).n, k).count;
  const auto [first, last] = run.Share(all_blocks);
  std::int64_t number = 0, column = 0;  // of the first block, and of the part
  for (int i = 0; i < num_parts; ++i) {
    const auto part = part_of(i);
    const auto [of_rows, blocks] = BlocksOfGemm(m, part.n, k);
    const std::int64_t size = of_rows ? m : part.n;
    for (std::int64_t block = std::max(first - number, std::int64_t{0}); block < std::min(last - number, blocks);
         ++block) {
      const std::int64_t begin = size * block / blocks, end = size * (block + 1) / blocks;
      const std::int64_t row = of_rows ? begin : 0, of_part = of_rows ? 0 : begin;
      const std::int64_t rows = of_rows ? end - begin : m, columns = of_rows ? part.n : end - begin;
      GemmOfStored<T>(run, rows, columns, k, {x + row * k, k}, part.matrix.From(0, of_part),
                      y + row * n + column + of_part, n, run.Adds(0), b == nullptr ? b : b + column + of_part);
    }
    number += blocks;
    column += part.n;
  }
}

// y [M, N] = x [M, K] times the weights of all parts side by side, plus y where the run adds, plus b where it is not
// null: the run's share. part_of(i) has the `matrix` [K, n], a MatrixView of T or BFloat16, and `n` of part i; all lie
// the same way.
template <typename T, typename PartOf>
void MultiplyByParts(const OpRun& run, const FCSizes& sizes, int num_parts, const PartOf& part_of, const T* x, T* y,
                     const T* b) {
  using W = std::remove_cvref_t<decltype(*part_of(0).matrix.data)>;
  if (run.packed() != nullptr) {
    PanelProduct(sizes.m, ShareOfColumns(run, sizes.n), sizes.k, x, sizes.k, static_cast<const W*>(run.packed()), y,
                 sizes.n, run.Adds(0), b);
  } else if (sizes.m == 1 && part_of(0).matrix.transposed) {
    MultiplyRowByParts(run, sizes, num_parts, part_of, x, y, b);
  } else {
    MultiplyRowsByParts(run, sizes, num_parts, part_of, x, y, b);
  }
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
