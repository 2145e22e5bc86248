#include "stepnet/operators/gemv.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "stepnet/core/target.h"
#include "stepnet/core/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/gemv.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes as many columns as eight vectors hold, kGemvColumns floats in vectors of 64 bytes: so many sums hide the
// latency of one multiplication behind the others.
template <class V, typename T>
HWY_INLINE void EightVectors(V v, std::int64_t k, const T* HWY_RESTRICT x, const T* HWY_RESTRICT b, std::int64_t stride,
                             T* HWY_RESTRICT y, bool accumulates) {
  const size_t lanes = hn::Lanes(v);
  const auto start = [&](size_t i) { return accumulates ? hn::LoadU(v, y + i * lanes) : hn::Zero(v); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5), s6 = start(6),
       s7 = start(7);
  for (std::int64_t l = 0; l < k; ++l, b += stride) {
    const auto factor = hn::Set(v, x[l]);
    s0 = hn::MulAdd(factor, hn::LoadU(v, b), s0);
    s1 = hn::MulAdd(factor, hn::LoadU(v, b + lanes), s1);
    s2 = hn::MulAdd(factor, hn::LoadU(v, b + 2 * lanes), s2);
    s3 = hn::MulAdd(factor, hn::LoadU(v, b + 3 * lanes), s3);
    s4 = hn::MulAdd(factor, hn::LoadU(v, b + 4 * lanes), s4);
    s5 = hn::MulAdd(factor, hn::LoadU(v, b + 5 * lanes), s5);
    s6 = hn::MulAdd(factor, hn::LoadU(v, b + 6 * lanes), s6);
    s7 = hn::MulAdd(factor, hn::LoadU(v, b + 7 * lanes), s7);
  }
  hn::StoreU(s0, v, y);
  hn::StoreU(s1, v, y + lanes);
  hn::StoreU(s2, v, y + 2 * lanes);
  hn::StoreU(s3, v, y + 3 * lanes);
  hn::StoreU(s4, v, y + 4 * lanes);
  hn::StoreU(s5, v, y + 5 * lanes);
  hn::StoreU(s6, v, y + 6 * lanes);
  hn::StoreU(s7, v, y + 7 * lanes);
}

// Computes as many columns as one vector holds, four rows of B at a time for the same reason.
template <class V, typename T>
HWY_INLINE void OneVector(V v, std::int64_t k, const T* HWY_RESTRICT x, const T* HWY_RESTRICT b, std::int64_t stride,
                          T* HWY_RESTRICT y, bool accumulates) {
  auto s0 = accumulates ? hn::LoadU(v, y) : hn::Zero(v), s1 = hn::Zero(v), s2 = hn::Zero(v), s3 = hn::Zero(v);
  std::int64_t l = 0;
  for (; l + 4 <= k; l += 4, b += 4 * stride) {
    s0 = hn::MulAdd(hn::Set(v, x[l]), hn::LoadU(v, b), s0);
    s1 = hn::MulAdd(hn::Set(v, x[l + 1]), hn::LoadU(v, b + stride), s1);
    s2 = hn::MulAdd(hn::Set(v, x[l + 2]), hn::LoadU(v, b + 2 * stride), s2);
    s3 = hn::MulAdd(hn::Set(v, x[l + 3]), hn::LoadU(v, b + 3 * stride), s3);
  }
  for (; l < k; ++l, b += stride) s0 = hn::MulAdd(hn::Set(v, x[l]), hn::LoadU(v, b), s0);
  hn::StoreU(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), v, y);
}

template <typename T>
void Multiply(std::int64_t n, std::int64_t k, const T* x, const T* b, T* y, bool accumulates) {
  const hn::ScalableTag<T> v;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(v));
  std::int64_t j = 0;
  for (; j + 8 * lanes <= n; j += 8 * lanes) EightVectors(v, k, x, b + j, n, y + j, accumulates);
  for (; j + lanes <= n; j += lanes) OneVector(v, k, x, b + j, n, y + j, accumulates);
  const hn::CappedTag<T, 1> one;
  for (; j < n; ++j) OneVector(one, k, x, b + j, n, y + j, accumulates);
}

// The first `count` of a vector, zeros behind them.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const BFloat16* from, size_t count) {
  // Masked loads of 16 bits may touch memory behind the last element, on machines that have none.
  HWY_ALIGN BFloat16 elements[hn::MaxLanes(d)] = {};
  std::memcpy(elements, from, count * sizeof(BFloat16));
  return LoadElements(d, elements);
}

// Rows of bfloat16 that are multiplied together, where there are registers for the sums: the next row's loads hide what
// the last sums of a row wait for. Meanwhile as many rows behind them come into the first cache
// (Target::max_bytes_to_fetch).
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
    const auto count = static_cast<size_t>(std::min(lanes, k - l));
    const auto factor = LoadFirst(v, x + l, count);
    STEPNET_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = hn::MulAdd(LoadFirst(v, b + r * stride + l, count), factor, sums[r][0]);
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
  constexpr int kRows = kIsPromoted ? kRowsTogether : 1;
  const bool fetches =
      kIsPromoted && kRows * stride * static_cast<std::int64_t>(sizeof(W)) <= kCpuTarget.max_bytes_to_fetch;
  std::int64_t j = 0;
  for (; fetches && j + 2 * kRows <= n; j += kRows) {
    MultiplySomeRows<kRows, true>(j, k, x, b, stride, y, accumulates, bias);
  }
  for (; j + kRows <= n; j += kRows) MultiplySomeRows<kRows, false>(j, k, x, b, stride, y, accumulates, bias);
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
