// TransposeMatrix: the one way in which kernels turn a matrix around.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/target.h"

namespace stepnet {

// Columns at a time: whole cache lines are read, from one row after the other, and so many rows are written, on and on;
// the other way around, stores would wait for lines that are far apart.
inline constexpr std::int64_t kTransposedColumns = kFloatsOfLine;

// TransposeMatrix of elements of 2, 4 or 8 bytes, whatever they stand for.
void TransposeBits(std::int64_t element_bytes, std::int64_t rows, std::int64_t columns, const void* x,
                   std::int64_t x_stride, void* y, std::int64_t y_stride);

// y [columns, rows] = the transpose of x [rows, columns]; the strides are elements from one row in memory to the next.
// Types of 2, 4 and 8 bytes that may be copied bit by bit are fastest. x and y do not overlap.
template <typename T>
void TransposeMatrix(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                     std::int64_t y_stride) {
  if constexpr (std::is_trivially_copyable_v<T> && sizeof(T) > 1) {
    TransposeBits(sizeof(T), rows, columns, x, x_stride, y, y_stride);
  } else {
    for (std::int64_t begin = 0; begin < columns; begin += kTransposedColumns) {
      CountWork(kTransposedColumns * rows);
      const std::int64_t end = std::min(begin + kTransposedColumns, columns);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = begin; c < end; ++c) y[c * y_stride + r] = x[r * x_stride + c];
      }
    }
  }
}

}  // namespace stepnet
