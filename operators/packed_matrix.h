// PackedMatrix: a matrix laid out once for many products with it on the right, as the weights of a recurrent net are
// the same at every step.
//
// Every element of a product is one chain of multiply-adds over K, in order. The result of a row therefore does not
// depend on how many rows are multiplied at once, nor on how columns are cut among several PackedMatrix: work may be
// divided among threads at will and gives the same bits.
// Immutable: may be used from many threads at once. Multiply allocates nothing.
#pragma once

#include <cstdint>

#include "stepnet/core/tensor.h"
#include "stepnet/operators/gemm.h"

namespace stepnet {

template <typename T>  // float or double
class PackedMatrix {
 public:
  // Copies b [K, N]. Sizes may be 0. Throws kOutOfMemory.
  PackedMatrix(std::int64_t k, std::int64_t n, MatrixView<T> b);

  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }

  // C [M, N] = A [M, K] B, plus C when `accumulates`, plus bias [N] in every row where bias is not null. A and C are
  // row-major with so many elements from row to row. Unless accumulated to, C is not read. C overlaps no input.
  void Multiply(std::int64_t m, const T* a, std::int64_t a_stride, T* c, std::int64_t c_stride,
                bool accumulates = false, const T* bias = nullptr) const;

 private:
  std::int64_t k_;
  std::int64_t n_;
  Tensor panels_;
};

}  // namespace stepnet
