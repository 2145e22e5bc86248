// Steps and loops of region kernels.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/regions/region_kernels.h"
#include "stepnet/core/target.h"

#if defined(STEPNET_CORE_REGION_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_REGION_VECTORS_INL_H_
#undef STEPNET_CORE_REGION_VECTORS_INL_H_
#else
#define STEPNET_CORE_REGION_VECTORS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The function of a chain that has none.
struct NoFn {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return a;
  }
};

// The step of a chain from a value, `a`.
template <ChainStep kStep, class V>
HWY_INLINE V StepOf(V a, V b) {
  if constexpr (kStep == ChainStep::kAdd) return hn::Add(a, b);
  if constexpr (kStep == ChainStep::kSubtract) return hn::Sub(a, b);
  if constexpr (kStep == ChainStep::kSubtractFrom) return hn::Sub(b, a);
  if constexpr (kStep == ChainStep::kMultiply) return hn::Mul(a, b);
  if constexpr (kStep == ChainStep::kDivide) return hn::Div(a, b);
  return a;
}

// Whole vectors, for whose results the cache is asked some time before.
struct VectorsAhead : WholeVectors {
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE void Store(D d, hn::Vec<D> vector, T* to) const {
    hwy::Prefetch(to + kCpuTarget.regions.bytes_ahead / static_cast<std::int64_t>(sizeof(T)));
    hn::StoreU(vector, d, to);
  }
};

// The last element where one is left, as the value of a single row. Stored as a part of a vector, it would have to be
// in the cache before the next kernel could load it.
struct OneElement {
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> Load(D d, const T* from) const {
    return hn::Set(d, *from);
  }
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE void Store(D, hn::Vec<D> vector, T* to) const {
    *to = hn::GetLane(vector);
  }
};

// Whether a loop that reads and writes so many elements T of all arrays asks for the lines of its results ahead.
template <typename T>
HWY_INLINE bool AsksAhead(std::int64_t elements) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(T));
  return bytes >= kCpuTarget.regions.filled_cache_bytes && bytes < kCpuTarget.regions.far_bytes && gains_by_asking;
}

// Calls at(access, place) for all vectors of n elements, of which the last may be a part. `kShort`: it is a few
// instructions, which four vectors at a time keep the machine busy with; `asks_ahead`: AsksAhead of this call and
// others of the same loop.
template <typename T, bool kShort, class At>
HWY_INLINE void ForVectors(std::int64_t n, bool asks_ahead, const At& at) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if constexpr (kShort) {
    for (; asks_ahead && i + 4 * lanes <= n; i += 4 * lanes) {
      at(VectorsAhead(), i);
      at(VectorsAhead(), i + lanes);
      at(VectorsAhead(), i + 2 * lanes);
      at(VectorsAhead(), i + 3 * lanes);
    }
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      at(WholeVectors(), i);
      at(WholeVectors(), i + lanes);
      at(WholeVectors(), i + 2 * lanes);
      at(WholeVectors(), i + 3 * lanes);
    }
  }
  for (; i + lanes <= n; i += lanes) at(WholeVectors(), i);
  if constexpr (kShort) {
    if (n - i == 1) return at(OneElement(), i);
  }
  if (i < n) at(PartOfVector{n - i}, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
