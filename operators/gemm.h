// Gemm: the one way in which kernels multiply matrices.
//
// Runs on the calling thread alone: how work is cut among threads is for executors to say. Equal inputs and shapes give
// equal bits. float goes to oneDNN where the library was built with it, everything else to Eigen.
#pragma once

#include <cstdint>

namespace stepnet {

// A matrix as Gemm reads it: row-major with `stride` elements from one row to the next, or the transpose of one. What
// is transposed has the shape that it has in the product; its rows in memory are its columns.
template <typename T>
struct MatrixView {
  const T* data;
  std::int64_t stride;
  bool transposed = false;
};

// C [M, N] = A [M, K] B [K, N], plus C when `accumulates`, plus bias [N] in every row where bias is not null.
// C is row-major with `c_stride` elements from row to row; unless accumulated to, it is not read. Sizes may be 0: with
// K = 0 the product is zeros. REQUIRES: strides of at least the length of a row in memory; C overlaps no input.
template <typename T>  // float or double
void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, std::int64_t c_stride,
          bool accumulates = false, const T* bias = nullptr);

// In how many blocks of about `block` rows or columns, or fewer, a product with `size` of them is cut for several
// threads. Several are an even number, so that two threads have equal shares.
constexpr std::int64_t NumGemmBlocks(std::int64_t size, std::int64_t block) {
  const std::int64_t blocks = size / block;
  return blocks > 1 ? blocks + blocks % 2 : 1;
}

}  // namespace stepnet
