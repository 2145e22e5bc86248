// Loops over arrays in whole vectors and one part of a vector at the end, which goes through the same instructions as
// the rest, so that an element's result does not depend on its place.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE.
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "stepnet/core/cancellation.h"

#if defined(STEPNET_CORE_PARTIAL_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_PARTIAL_VECTORS_INL_H_
#undef STEPNET_CORE_PARTIAL_VECTORS_INL_H_
#else
#define STEPNET_CORE_PARTIAL_VECTORS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether masked loads and stores of T leave alone what the mask leaves out. AVX2 has some of 32 and 64 bits alone.
template <typename T>
inline constexpr bool kMasksMemory = !HWY_MEM_OPS_MIGHT_FAULT || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= 4);

// The first `count` lanes from memory, which is not touched beyond them; the others are 0.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadPart(D d, const T* from, std::int64_t count) {
  if constexpr (kMasksMemory<T>) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, from);
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
    std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
    return hn::Load(d, lanes);
  }
}

// Writes the first `count` lanes and nothing else.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void StorePart(D d, hn::Vec<D> vector, T* to, std::int64_t count) {
  if constexpr (kMasksMemory<T>) {
    hn::BlendedStore(vector, hn::FirstN(d, static_cast<size_t>(count)), d, to);
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(vector, d, lanes);
    std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(T));
  }
}

// How a loop over an array loads and stores: whole vectors, or the part of one that the array still has.
struct WholeVectors {
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> Load(D d, const T* from) const {
    return hn::LoadU(d, from);
  }
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE void Store(D d, hn::Vec<D> vector, T* to) const {
    hn::StoreU(vector, d, to);
  }
  // The vector, with `other` in lanes beyond the array: for sums and the like.
  template <class D>
  HWY_INLINE hn::Vec<D> KeepOr(D, hn::Vec<D> vector, hn::Vec<D> /*other*/) const {
    return vector;
  }
};
struct PartOfVector {
  std::int64_t count;
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> Load(D d, const T* from) const {
    return LoadPart(d, from, count);
  }
  template <class D, typename T = hn::TFromD<D>>
  HWY_INLINE void Store(D d, hn::Vec<D> vector, T* to) const {
    StorePart(d, vector, to, count);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> KeepOr(D d, hn::Vec<D> vector, hn::Vec<D> other) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), vector, other);
  }
};

// Calls fn(access, i) for vectors from i on that cover [0, n): `[&](auto access, std::int64_t i) HWY_ATTR { … }`, where
// access is one of the two above.
template <class D, class Fn>
HWY_INLINE void ForEachVector(D d, std::int64_t n, const Fn& fn) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t end = std::min(n, i + kWorkOfBlock);
    CountWork(end - i);
    for (; i + lanes <= end; i += lanes) fn(WholeVectors(), i);
    if (i < end) fn(PartOfVector{end - i}, i);
    i = end;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
