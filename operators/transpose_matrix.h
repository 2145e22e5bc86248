// TransposeMatrix: the one way in which kernels turn a matrix around.
#pragma once

#include <cstdint>

namespace stepnet {

// y [columns, rows] = the transpose of x [rows, columns]; the strides are elements from one row in memory to the next.
// T is any type that may be copied bit by bit; those of 2, 4 and 8 bytes are fastest. x and y do not overlap.
template <typename T>
void TransposeMatrix(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                     std::int64_t y_stride);

}  // namespace stepnet
