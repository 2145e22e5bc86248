// Products of small matrices, of which kernels have many: those of items of a batch, outer products.
#pragma once

#include <cstdint>

#include "stepnet/products/gemm.h"

namespace stepnet {

// Elements of a transposed B that are laid out at once.
inline constexpr std::int64_t kBlockOfSmallGemm = 1 << 12;

// Whether products of these sizes are computed by SmallGemm: libraries take a microsecond whatever the sizes are, and
// up to the largest of these 1.01 to 3 times as long (oneDNN 2.6 and Eigen, AVX-512, matrices on cache lines); but for
// one row, which they multiply faster where B is larger than the first cache. Others round otherwise, so these are no
// figures of a Target.
constexpr bool IsSmallGemm(std::int64_t m, std::int64_t n, std::int64_t k, bool b_transposed) {
  constexpr std::int64_t kMaxRows = 64, kMaxProducts = 1 << 15, kMaxElements = 1 << 17;
  constexpr std::int64_t kMaxTransposed = 1 << 14, kMaxTerms = 64;  // of a B that is laid out in blocks
  if (m == 1) return n * k <= kBlockOfSmallGemm;
  if (m > kMaxRows) return m * n * k <= kMaxProducts;
  if (!b_transposed) return n * k <= kMaxElements;
  return n * k <= (k <= kMaxTerms ? kMaxTransposed : kBlockOfSmallGemm);
}

// C [M, N] = A B, plus C when `accumulates`, T float or double. The terms of an element are added up in their order, so
// that it has the same bits however many rows and columns there are. REQUIRES: IsSmallGemm; sizes above 0; C overlaps
// no input.
template <typename T>
void SmallGemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
               std::int64_t c_stride, bool accumulates);

}  // namespace stepnet
