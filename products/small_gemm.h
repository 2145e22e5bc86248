// Products of small matrices, of which kernels have many: those of items of a batch, outer products.
#pragma once

#include <cstdint>

#include "stepnet/products/gemm.h"

namespace stepnet {

// Elements of B.
inline constexpr std::int64_t kMaxFactorOfSmallGemm = 1 << 12;

// Whether products of these sizes are computed by SmallGemm: libraries take half a microsecond whatever the sizes are,
// and up to the largest of these 1.2 to 5 times as long (oneDNN 2.6 and Eigen, AVX-512; 8 by 64 by 64, 32 cubed).
// Others round otherwise, so these are no figures of a Target.
constexpr bool IsSmallGemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMaxProducts = 1 << 15;
  return n * k <= kMaxFactorOfSmallGemm && m * n * k <= kMaxProducts;
}

// C [M, N] = A B, plus C when `accumulates`, T float or double. The terms of an element are added up in their order, so
// that it has the same bits however many rows and columns there are. REQUIRES: IsSmallGemm; sizes above 0; C overlaps
// no input.
template <typename T>
void SmallGemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
               std::int64_t c_stride, bool accumulates);

}  // namespace stepnet
