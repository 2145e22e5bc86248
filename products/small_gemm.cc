#include "stepnet/products/small_gemm.h"

#include <array>
#include <type_traits>

#include "stepnet/core/unroll.h"
#include "stepnet/products/transpose_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/small_gemm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Some rows of a vector of columns or, with PartOfVector, of fewer; element (i, l) of A is at i * a_row + l * a_term.
// Several rows hide the latency of one multiplication behind the others.
template <int kRows, class D, class Part, typename T>
HWY_INLINE void SomeRows(D d, Part part, std::int64_t k, const T* HWY_RESTRICT a, std::int64_t a_row,
                         std::int64_t a_term, const T* HWY_RESTRICT b, std::int64_t b_stride, T* HWY_RESTRICT c,
                         std::int64_t c_stride, bool accumulates) {
  hn::Vec<D> sums[kRows];
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i] = accumulates ? part.Load(d, c + i * c_stride) : hn::Zero(d);
  for (std::int64_t l = 0; l < k; ++l) {
    const auto factors = part.Load(d, b + l * b_stride);
    STEPNET_UNROLL
    for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Set(d, a[i * a_row + l * a_term]), factors, sums[i]);
  }
  STEPNET_UNROLL
  for (int i = 0; i < kRows; ++i) part.Store(d, sums[i], c + i * c_stride);
}

template <class D, class Part, typename T>
HWY_INLINE void AllRows(D d, Part part, std::int64_t m, std::int64_t k, MatrixView<T> a, const T* b,
                        std::int64_t b_stride, T* c, std::int64_t c_stride, bool accumulates) {
  const std::int64_t a_row = a.transposed ? 1 : a.stride, a_term = a.transposed ? a.stride : 1;
  const auto some = [&]<int kRows>(std::int64_t i) HWY_ATTR {
    SomeRows<kRows>(d, part, k, a.data + i * a_row, a_row, a_term, b, b_stride, c + i * c_stride, c_stride,
                    accumulates);
  };
  std::int64_t i = 0;
  for (; i + 8 <= m; i += 8) some.template operator()<8>(i);
  if (i + 4 <= m) {
    some.template operator()<4>(i);
    i += 4;
  }
  if (i + 2 <= m) {
    some.template operator()<2>(i);
    i += 2;
  }
  if (i < m) some.template operator()<1>(i);
}

template <typename T>
void MultiplySmall(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, const T* b, std::int64_t b_stride,
                   T* c, std::int64_t c_stride, bool accumulates) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) AllRows(d, WholeVectors(), m, k, a, b + j, b_stride, c + j, c_stride, accumulates);
  if (j < n) AllRows(d, PartOfVector{n - j}, m, k, a, b + j, b_stride, c + j, c_stride, accumulates);
}

void SmallFloat(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<float> a, const float* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulates) {
  MultiplySmall(m, n, k, a, b, b_stride, c, c_stride, accumulates);
}
void SmallDouble(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<double> a, const double* b,
                 std::int64_t b_stride, double* c, std::int64_t c_stride, bool accumulates) {
  MultiplySmall(m, n, k, a, b, b_stride, c, c_stride, accumulates);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SmallFloat);
HWY_EXPORT(SmallDouble);

template <typename T>
void SmallGemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<T> a, MatrixView<T> b, T* c,
               std::int64_t c_stride, bool accumulates) {
  std::array<T, kMaxFactorOfSmallGemm> rows;
  if (b.transposed && k == 1 && b.stride == 1) {
    b = {.data = b.data, .stride = n};  // a row, too
  } else if (b.transposed) {
    TransposeMatrix(n, k, b.data, b.stride, rows.data(), n);
    b = {.data = rows.data(), .stride = n};
  }
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(SmallFloat)(m, n, k, a, b.data, b.stride, c, c_stride, accumulates);
  } else {
    HWY_DYNAMIC_DISPATCH(SmallDouble)(m, n, k, a, b.data, b.stride, c, c_stride, accumulates);
  }
}

template void SmallGemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<float>, MatrixView<float>, float*,
                        std::int64_t, bool);
template void SmallGemm(std::int64_t, std::int64_t, std::int64_t, MatrixView<double>, MatrixView<double>, double*,
                        std::int64_t, bool);

}  // namespace stepnet
#endif  // HWY_ONCE
