// A row times a matrix, for the steps of sequences one by one. Kernels call Gemm, which calls these.
#pragma once

#include <cstdint>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Rows with more columns are added one after the other; fewer sums stay in registers.
inline constexpr std::int64_t kMaxColumnsOfGemv = 128;

// Whether a row times B [K, N] is computed by Gemv: where B has few columns, so that what it reads in one go is on and
// on in memory, or is small: libraries take half a microsecond whatever it is. They round otherwise, so these are no
// figures of a Target.
constexpr bool IsGemv(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMaxElements = 1 << 16;
  return n <= kMaxColumnsOfGemv || n * k <= kMaxElements;
}

// y [N] = x [K] B [K, N], plus y when `accumulates`; B is row-major without gaps. Unless accumulated to, y is not read.
// T is float or double.
template <typename T>
void Gemv(std::int64_t n, std::int64_t k, const T* x, const T* b, T* y, bool accumulates);

// y [N] = x [K] B^T, plus y when `accumulates`, plus bias [N] where it is not null; B [N, K] has `stride` elements from
// one row to the next, which are read one after the other. An element of y has the same bits however many there are.
// B is of T or, where that is float, of BFloat16: those give the bits of the floats that they are.
template <typename T, typename W>
void GemvOfRows(std::int64_t n, std::int64_t k, const T* x, const W* b, std::int64_t stride, T* y, bool accumulates,
                const T* bias = nullptr);

}  // namespace stepnet
