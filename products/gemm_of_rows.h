// Some rows times the rows of a matrix, which both lie one after the other: a few dozen steps of one sequence at once.
#pragma once

#include <cstdint>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Whether products of these sizes are computed by GemmOfRows. Libraries lay B out anew for each product, which takes
// longer than to add up the lanes of vectors where rows are few and long: with B [4096, 1024] and 36 rows 1.36 times as
// long, with 64 rows 1.2 times, with [1024, 256] 1.04 and 0.88 times (oneDNN 2.6, AVX-512). All rows of A are to stay
// in the second cache. Others round otherwise, so these are no figures of a Target.
constexpr bool IsGemmOfRows(std::int64_t m, std::int64_t k) {
  constexpr std::int64_t kTermsOfRow = 8, kMaxElements = 1 << 17;
  return m > 1 && m <= k / kTermsOfRow && m * k <= kMaxElements;
}

// C [M, N] = A [M, K] B^T, plus C when `accumulates`, plus bias [N] in every row where it is not null. A, B [N, K] and
// C have so many elements from one row to the next; unless accumulated to, C is not read. An element of C has the same
// bits however many rows and columns there are. B is of float or of BFloat16: those give the bits of the floats that
// they are. Sizes may be 0. REQUIRES: C overlaps no input.
template <typename W>
void GemmOfRows(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const W* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates = false,
                const float* bias = nullptr);

}  // namespace stepnet
