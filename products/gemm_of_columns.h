// The columns of a matrix times those of another: gradients of weights, whose sums go over all rows of both.
#pragma once

#include <cstdint>

namespace stepnet {

// Whether products of these sizes are computed by GemmOfColumns: with rows of A that take whole pages of 4 KB, as those
// of four gates often do, libraries take 1.05 to 1.15 times as long (oneDNN 2.6, AVX-512, rows of B of 256 to 1024).
// With other rows, and with fewer rows or columns, they are faster. Others round otherwise, so these are no figures of
// a Target.
constexpr bool IsGemmOfColumns(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t a_stride) {
  constexpr std::int64_t kMinRows = 128, kMinColumns = 256, kMinTerms = 64, kFloatsOfPage = 1024;
  return m >= kMinRows && n >= kMinColumns && k >= kMinTerms && a_stride % kFloatsOfPage == 0;
}

// C [M, N] = A^T B, plus C when `accumulates`. A [K, M], B [K, N] and C have so many elements from one row to the next;
// unless accumulated to, C is not read. The terms of an element are added up in their order, some hundred at a time, so
// that it has the same bits however many rows and columns there are. Sizes may be 0. REQUIRES: C overlaps no input.
// Throws kOutOfMemory.
void GemmOfColumns(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates = false);

}  // namespace stepnet
