// Weights of products, which are stored in the dtype of the product or, where that is float, in bfloat16.
//
// A bfloat16 is the upper half of a float, so promotion is exact, and a product with it has the bits of one with the
// float. Products of our own promote in registers. A library that multiplies needs floats in memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/op_run.h"
#include "stepnet/core/regions/region_kernels.h"
#include "stepnet/products/gemm.h"
#include "stepnet/products/gemm_of_rows.h"

namespace stepnet {

// Calls `fn` with the elements of `w`, T or BFloat16.
template <typename T, typename Fn>
void ForWeights(const TensorView& w, Fn&& fn) {
  if constexpr (std::is_same_v<T, float>) {
    if (w.dtype == DType::kBFloat16) return fn(w.As<BFloat16>());
  }
  fn(w.As<T>());
}

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
    const RegionKernel promote = KernelOf(ExprOp::kCast, kDTypeOf<W>, kDTypeOf<T>);
    for (std::int64_t r = 0; r < rows; ++r) {
      CountWork(columns);
      promote(floats + r * b.stride, b.data + r * b.stride, nullptr, nullptr, nullptr, columns);
    }
    return {.data = floats, .stride = b.stride, .transposed = b.transposed};
  }
}

// Gemm of A [M, K] and B [K, N], with the same bits whatever B is stored in.
template <typename T, typename W>
void GemmOfStored(const OpRun& run, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<W> b,
                  T* c, std::int64_t c_stride, bool accumulates, const T* bias) {
  if constexpr (!std::is_same_v<T, W>) {
    if (!a.transposed && b.transposed && IsGemmOfRows(m, k)) {
      return GemmOfRows(m, n, k, a.data, a.stride, b.data, b.stride, c, c_stride, accumulates, bias);
    }
  }
  Gemm<T>(m, n, k, a, Promoted<T>(run, k, n, b), c, c_stride, accumulates, bias);
}

// Calls body(row, column, rows, columns) for the run's share of the blocks of a product [M, N] of sums of K terms.
template <typename Body>
void ForEachBlock(const OpRun& run, std::int64_t m, std::int64_t n, std::int64_t k, const Body& body) {
  const auto [of_rows, blocks] = BlocksOfGemm(m, n, k);
  const std::int64_t size = of_rows ? m : n;
  const auto [first, last] = run.Share(blocks);
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t begin = size * block / blocks, end = size * (block + 1) / blocks;
    of_rows ? body(begin, 0, end - begin, n) : body(0, begin, m, end - begin);
  }
}

// y [M, N] = a [M, K] b [K, N], plus y when `adds`, plus bias [N] in every row where it is not null: the run's share of
// the blocks of the product.
template <typename T, typename W>
void MultiplyInBlocks(const OpRun& run, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a,
                      MatrixView<W> b, T* y, bool adds, const T* bias = nullptr) {
  ForEachBlock(run, m, n, k, [&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    GemmOfStored<T, W>(run, rows, columns, k, a.From(row, 0), b.From(0, column), y + row * n + column, n, adds,
                       bias == nullptr ? bias : bias + column);
  });
}

}  // namespace stepnet
