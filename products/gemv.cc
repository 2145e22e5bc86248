#include "stepnet/products/gemv.h"

#include <algorithm>
#include <type_traits>

#include "stepnet/core/target.h"
#include "stepnet/core/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/gemv.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes the columns of kVectors vectors, by sums of every kTerms-th term, which are added up two by two: eight sums,
// or four, hide the latency of one multiplication behind the others.
template <int kVectors, int kTerms, class D, typename T>
HWY_INLINE void SomeVectors(D d, std::int64_t k, const T* HWY_RESTRICT x, const T* HWY_RESTRICT b, std::int64_t stride,
                            T* HWY_RESTRICT y, bool accumulates) {
  static_assert(kTerms == 1 || kTerms == 4);
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sums[kTerms][kVectors];
  STEPNET_UNROLL
  for (int t = 0; t < kTerms; ++t) {
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[t][v] = t == 0 && accumulates ? hn::LoadU(d, y + v * lanes) : hn::Zero(d);
    }
  }
  const auto add_term = [&](int t, std::int64_t l) HWY_ATTR {
    const auto factor = hn::Set(d, x[l]);
    STEPNET_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[t][v] = hn::MulAdd(factor, hn::LoadU(d, b + l * stride + v * lanes), sums[t][v]);
    }
  };
  std::int64_t l = 0;
  for (; l + kTerms <= k; l += kTerms) {
    STEPNET_UNROLL
    for (int t = 0; t < kTerms; ++t) add_term(t, l + t);
  }
  for (; l < k; ++l) add_term(0, l);
  STEPNET_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    auto sum = sums[0][v];
    if constexpr (kTerms == 4) sum = hn::Add(hn::Add(sum, sums[1][v]), hn::Add(sums[2][v], sums[3][v]));
    hn::StoreU(sum, d, y + v * lanes);
  }
}

// Adds a row of B after the other to y. So B is read on and on, which is faster than several of its rows at once.
template <class D, class Part, typename T>
HWY_INLINE void AddAt(D d, Part part, hn::Vec<D> factor, const T* HWY_RESTRICT b, T* HWY_RESTRICT y, bool accumulates) {
  const auto sum = accumulates ? part.Load(d, y) : hn::Zero(d);
  part.Store(d, hn::MulAdd(factor, part.Load(d, b), sum), y);
}

template <typename T>
void MultiplyRowByRow(std::int64_t n, std::int64_t k, const T* x, const T* b, T* y, bool accumulates) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t l = 0; l < k; ++l, b += n) {
    const auto factor = hn::Set(d, x[l]);
    const bool adds = accumulates || l > 0;
    std::int64_t j = 0;
    for (; j + lanes <= n; j += lanes) AddAt(d, WholeVectors(), factor, b + j, y + j, adds);
    if (j < n) AddAt(d, PartOfVector{n - j}, factor, b + j, y + j, adds);
  }
}

template <typename T>
void Multiply(std::int64_t n, std::int64_t k, const T* x, const T* b, T* y, bool accumulates) {
  if (n > kMaxColumnsOfGemv) return MultiplyRowByRow(n, k, x, b, y, accumulates);
  const hn::ScalableTag<T> v;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(v));
  std::int64_t j = 0;
  for (; j + 8 * lanes <= n; j += 8 * lanes) SomeVectors<8, 1>(v, k, x, b + j, n, y + j, accumulates);
  for (; j + lanes <= n; j += lanes) SomeVectors<1, 4>(v, k, x, b + j, n, y + j, accumulates);
  const hn::CappedTag<T, 1> one;
  for (; j < n; ++j) SomeVectors<1, 4>(one, k, x, b + j, n, y + j, accumulates);
}

// Short rows are multiplied together, where there are registers for the sums: x is loaded once for all of them, and the
// next row's loads hide what the last sums of a row wait for (rows of 128: 0.9 of the time of one after the other).
// Long rows are multiplied one after the other (Target::min_bytes_of_long_row). Rows of bfloat16 are always together:
// as many behind them come into the first cache meanwhile (Target::max_bytes_to_fetch).
#if HWY_MAX_BYTES >= 64
constexpr int kRowsTogether = 4;
#else
constexpr int kRowsTogether = 1;
#endif

// Elements of y, each by four sums of vectors: so many hide the latency of one multiplication behind the others.
template <int kRows, bool kFetches, typename T, typename W>
HWY_INLINE void DotRows(std::int64_t k, const T* HWY_RESTRICT x, const W* HWY_RESTRICT b, std::int64_t stride,
                        T* HWY_RESTRICT y) {
  const hn::ScalableTag<T> v;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(v));
  constexpr int kSums = 4;
  hn::Vec<decltype(v)> sums[kRows][kSums];
  STEPNET_UNROLL
  for (int r = 0; r < kRows; ++r) {
    STEPNET_UNROLL
    for (int i = 0; i < kSums; ++i) sums[r][i] = hn::Zero(v);
  }
  std::int64_t l = 0;
  for (; l + kSums * lanes <= k; l += kSums * lanes) {
    STEPNET_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const auto factor = hn::LoadU(v, x + l + i * lanes);
      STEPNET_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const W* const elements = b + r * stride + l + i * lanes;
        const bool begins_line = static_cast<size_t>(i) * hn::Lanes(v) * sizeof(W) % 64 == 0;
        if (kFetches && begins_line) hwy::Prefetch(elements + kRows * stride);
        sums[r][i] = hn::MulAdd(LoadElements(v, elements), factor, sums[r][i]);
      }
    }
  }
  for (; l < k; l += lanes) {
    const std::int64_t count = std::min(lanes, k - l);
    const auto factor = LoadPart(v, x + l, count);
    STEPNET_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = hn::MulAdd(LoadPart(v, b + r * stride + l, count), factor, sums[r][0]);
    }
  }
  STEPNET_UNROLL
  for (int r = 0; r < kRows; ++r) {
    y[r] = hn::GetLane(hn::SumOfLanes(v, hn::Add(hn::Add(sums[r][0], sums[r][1]), hn::Add(sums[r][2], sums[r][3]))));
  }
}

// Elements [j, j + kRows) of y.
template <int kRows, bool kFetches, typename T, typename W>
HWY_INLINE void MultiplySomeRows(std::int64_t j, std::int64_t k, const T* x, const W* b, std::int64_t stride, T* y,
                                 bool accumulates, const T* bias) {
  T sums[kRows];
  DotRows<kRows, kFetches>(k, x, b + j * stride, stride, sums);
  for (int r = 0; r < kRows; ++r) {
    if (bias != nullptr) {
      sums[r] += accumulates ? y[j + r] + bias[j + r] : bias[j + r];
    } else if (accumulates) {
      sums[r] += y[j + r];
    }
    y[j + r] = sums[r];
  }
}

template <typename T, typename W>
void MultiplyRows(std::int64_t n, std::int64_t k, const T* x, const W* b, std::int64_t stride, T* y, bool accumulates,
                  const T* bias) {
  constexpr bool kIsPromoted = std::is_same_v<W, BFloat16>;
  constexpr int kRows = kRowsTogether;
  const bool fetches =
      kIsPromoted && kRows * stride * static_cast<std::int64_t>(sizeof(W)) <= kCpuTarget.max_bytes_to_fetch;
  const bool are_long = !kIsPromoted && k * static_cast<std::int64_t>(sizeof(T)) >= kCpuTarget.min_bytes_of_long_row;
  std::int64_t j = 0;
  for (; fetches && j + 2 * kRows <= n; j += kRows) {
    MultiplySomeRows<kRows, true>(j, k, x, b, stride, y, accumulates, bias);
  }
  for (; !are_long && j + kRows <= n; j += kRows) {
    MultiplySomeRows<kRows, false>(j, k, x, b, stride, y, accumulates, bias);
  }
  for (; j < n; ++j) MultiplySomeRows<1, false>(j, k, x, b, stride, y, accumulates, bias);
}

void RowsFloat(std::int64_t n, std::int64_t k, const float* x, const float* b, std::int64_t stride, float* y,
               bool accumulates, const float* bias) {
  MultiplyRows(n, k, x, b, stride, y, accumulates, bias);
}
void RowsBFloat16(std::int64_t n, std::int64_t k, const float* x, const BFloat16* b, std::int64_t stride, float* y,
                  bool accumulates, const float* bias) {
  MultiplyRows(n, k, x, b, stride, y, accumulates, bias);
}
void RowsDouble(std::int64_t n, std::int64_t k, const double* x, const double* b, std::int64_t stride, double* y,
                bool accumulates, const double* bias) {
  MultiplyRows(n, k, x, b, stride, y, accumulates, bias);
}

void GemvFloat(std::int64_t n, std::int64_t k, const float* x, const float* b, float* y, bool accumulates) {
  Multiply(n, k, x, b, y, accumulates);
}
void GemvDouble(std::int64_t n, std::int64_t k, const double* x, const double* b, double* y, bool accumulates) {
  Multiply(n, k, x, b, y, accumulates);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(RowsFloat);
HWY_EXPORT(RowsBFloat16);
HWY_EXPORT(RowsDouble);
HWY_EXPORT(GemvFloat);
HWY_EXPORT(GemvDouble);

template <typename T>
void Gemv(std::int64_t n, std::int64_t k, const T* x, const T* b, T* y, bool accumulates) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(GemvFloat)(n, k, x, b, y, accumulates);
  } else {
    HWY_DYNAMIC_DISPATCH(GemvDouble)(n, k, x, b, y, accumulates);
  }
}

template <typename T, typename W>
void GemvOfRows(std::int64_t n, std::int64_t k, const T* x, const W* b, std::int64_t stride, T* y, bool accumulates,
                const T* bias) {
  if constexpr (std::is_same_v<W, BFloat16>) {
    HWY_DYNAMIC_DISPATCH(RowsBFloat16)(n, k, x, b, stride, y, accumulates, bias);
  } else if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(RowsFloat)(n, k, x, b, stride, y, accumulates, bias);
  } else {
    HWY_DYNAMIC_DISPATCH(RowsDouble)(n, k, x, b, stride, y, accumulates, bias);
  }
}

template void GemvOfRows(std::int64_t, std::int64_t, const float*, const float*, std::int64_t, float*, bool,
                         const float*);
template void GemvOfRows(std::int64_t, std::int64_t, const float*, const BFloat16*, std::int64_t, float*, bool,
                         const float*);
template void GemvOfRows(std::int64_t, std::int64_t, const double*, const double*, std::int64_t, double*, bool,
                         const double*);
template void Gemv(std::int64_t, std::int64_t, const float*, const float*, float*, bool);
template void Gemv(std::int64_t, std::int64_t, const double*, const double*, double*, bool);

}  // namespace stepnet
#endif  // HWY_ONCE
