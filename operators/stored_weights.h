// Weights of products, which are stored in the dtype of the product or, where that is float, in bfloat16.
//
// A bfloat16 is the upper half of a float, so promotion is exact, and a product with it has the bits of one with the
// float. Products of our own promote in registers. A library that multiplies needs floats in memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/op_run.h"
#include "stepnet/operators/gemm.h"

namespace stepnet {

// Calls `fn` with the elements of `w`, T or BFloat16.
template <typename T, typename Fn>
void ForWeights(const TensorView& w, Fn&& fn) {
  if constexpr (std::is_same_v<T, float>) {
    if (w.dtype == DType::kBFloat16) return fn(w.As<BFloat16>());
  }
  fn(w.As<T>());
}

// The same numbers.
void Promote(std::int64_t n, const BFloat16* from, float* to);

// B [K, N] for Gemm: itself, or the floats that it stands for, in the run's scratch memory. Made anew for each block of
// a product, it is in the cache when the block is computed. It has the strides of what it copies, as libraries choose
// by them how they add up.
template <typename T, typename W>
MatrixView<T> Promoted(const OpRun& run, std::int64_t k, std::int64_t n, MatrixView<W> b) {
  if constexpr (std::is_same_v<T, W>) {
    return b;
  } else {
    const std::int64_t rows = b.transposed ? n : k, columns = b.transposed ? k : n;
    if (rows == 0 || columns == 0) return {.data = nullptr, .stride = b.stride, .transposed = b.transposed};
    T* const floats = run.ScratchOf<T>((rows - 1) * b.stride + columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      CountWork(columns);
      Promote(columns, b.data + r * b.stride, floats + r * b.stride);
    }
    return {.data = floats, .stride = b.stride, .transposed = b.transposed};
  }
}

}  // namespace stepnet
