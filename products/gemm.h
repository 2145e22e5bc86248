// Gemm: the one way in which kernels multiply matrices.
//
// Runs on the calling thread alone: how work is cut among threads is for executors to say. Equal inputs and shapes give
// equal bits. A row times a matrix that is narrow, small or transposed goes to products/gemv.h, and so does a small
// matrix times a column, which is that; other small matrices go to products/small_gemm.h; of float, few long rows times
// a matrix that is transposed go to products/gemm_of_rows.h, and some transposed matrices times others that are not to
// products/gemm_of_columns.h; else float goes to oneDNN where the library was built with it, double to Eigen. Large
// products are computed in blocks, between which the run can be stopped.
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

  // Without its first rows and columns, as the product reads it.
  MatrixView From(std::int64_t row, std::int64_t column) const {
    return {data + (transposed ? column * stride + row : row * stride + column), stride, transposed};
  }
};

// C [M, N] = A [M, K] B [K, N], plus C when `accumulates`, plus bias [N] in every row where bias is not null.
// C is row-major with `c_stride` elements from row to row; unless accumulated to, it is not read. Sizes may be 0: with
// K = 0 the product is zeros. REQUIRES: strides of at least the length of a row in memory; C overlaps no input.
template <typename T>  // float or double
void Gemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, std::int64_t c_stride,
          bool accumulates = false, const T* bias = nullptr);

// Products of elements that take as long as a unit of work (CountWork).
inline constexpr std::int64_t kProductsOfWork = 16;

// To be called where a kernel that multiplies is made: a library that Gemm uses needs memory for its first product and
// does not look whether it got it, so where the system may refuse it, threads that run at that time must not take it
// away. Elsewhere the first product that is not small prepares the library, which takes 18 ms. Throws kOutOfMemory.
void PrepareGemm();

// In how many blocks a product is cut for several threads: of its columns, or of its rows where there are many.
// Products are always computed in these blocks, so that equal inputs give equal bits on any number of threads and, as
// their sizes are no figures of a Target, on any machine that rounds alike. Several blocks are an even number, so that
// two threads have equal shares.
struct GemmBlocks {
  bool of_rows = false;
  std::int64_t count = 1;
};

// Gives, as GemmBlocks does, blocks of columns of a product [M, size] whose sums have `depth` terms. They have `width`
// columns, or half of those that there are, and more where the sums are short. Products in narrower blocks take longer:
// some percent with 256 columns, up to a tenth with 128, up to twice the time with 64 (as measured with oneDNN 2.6,
// AVX-512).
constexpr std::int64_t NumColumnBlocks(std::int64_t size, std::int64_t depth, std::int64_t width = 256) {
  constexpr std::int64_t kTerms = 1 << 15;  // of a row; blocks of less are not worth a thread
  if (size / 2 < width) width = size / 2;
  while (width > 0 && width < size && width * depth < kTerms) width *= 2;
  const std::int64_t blocks = width > 0 ? size / width : 1;
  return blocks > 1 ? blocks + blocks % 2 : 1;
}

// The blocks of a product [M, N] whose sums have `depth` terms.
constexpr GemmBlocks BlocksOfGemm(std::int64_t m, std::int64_t n, std::int64_t depth) {
  constexpr std::int64_t kRows = 256;
  if (m < 2 * kRows) return {.of_rows = false, .count = NumColumnBlocks(n, depth)};
  const std::int64_t blocks = m / kRows;
  return {.of_rows = true, .count = blocks + blocks % 2};
}

}  // namespace stepnet
