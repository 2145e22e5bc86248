// The partial results of a reduction, which are as many whatever the width of vectors is: so are the bits.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE.
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "stepnet/core/arithmetic_vectors-inl.h"
#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/regions/region_kernels.h"

#if defined(STEPNET_CORE_ROW_PARTIALS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_ROW_PARTIALS_INL_H_
#undef STEPNET_CORE_ROW_PARTIALS_INL_H_
#else
#define STEPNET_CORE_ROW_PARTIALS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The partial results of a reduction, in vectors.
template <class Fn, typename T>
struct Partials {
  using D = hn::CappedTag<T, kRowPartials>;
  static constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  static constexpr int kVectors = kRowPartials / static_cast<int>(kLanes);
  hn::Vec<D> vectors[kVectors];

  HWY_INLINE explicit Partials(T first) {
    const D d;
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) vectors[k] = hn::Set(d, first);
  }

  // Adds at(access, j, k), the elements [j, j + lanes) of n as a vector, to vectors[k].
  template <class At>
  HWY_INLINE void AddAll(std::int64_t n, const At& at) {
    ForVectors(
        n, [&](auto access, std::int64_t j, int k, const auto& add) HWY_ATTR { add(&vectors[k], at(access, j, k)); });
  }

  // Likewise two of them: at(access, j, value, other) sets what is added here and to `others`.
  template <class At>
  HWY_INLINE void AddAllWith(Partials* others, std::int64_t n, const At& at) {
    ForVectors(n, [&](auto access, std::int64_t j, int k, const auto& add) HWY_ATTR {
      hn::Vec<D> value, other;
      at(access, j, &value, &other);
      add(&vectors[k], value);
      add(&others->vectors[k], other);
    });
  }

  HWY_INLINE void Add(const T* x, std::int64_t n) {
    AddAll(n, [x](auto access, std::int64_t j, int /*k*/) HWY_ATTR { return access.Load(D(), x + j); });
  }

  // Half as many each time, of a row of n elements: those behind them are what each began with, which changes nothing.
  template <class Last = Fn>
  HWY_INLINE T Finish(std::int64_t n) {
    const D d;
    const Last fn;
    HWY_UNROLL(8)
    for (int width = kVectors / 2; width > 0; width /= 2) {
      if (n <= width * kLanes) continue;
      HWY_UNROLL(16)
      for (int k = 0; k < width; ++k) vectors[k] = fn(d, vectors[k], vectors[k + width]);
    }
    return FinishLanes<Last>(d, vectors[0]);
  }

 private:
  // Calls use(access, j, k, add) for each vector of n elements: add(sum, value) adds those of them that there are.
  template <class Use>
  static HWY_INLINE void ForVectors(std::int64_t n, const Use& use) {
    const D d;
    const Fn fn;
    const auto add = [&](hn::Vec<D>* sum, hn::Vec<D> value) HWY_ATTR { *sum = fn(d, *sum, value); };
    std::int64_t i = 0;
    for (; i + kRowPartials <= n; i += kRowPartials) {
      HWY_UNROLL(16)
      for (int k = 0; k < kVectors; ++k) use(WholeVectors(), i + k * kLanes, k, add);
    }
    if (i == n) return;
    HWY_UNROLL(16)
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t count = std::clamp<std::int64_t>(n - i - k * kLanes, 0, kLanes);
      if (count == 0) break;
      const auto mask = hn::FirstN(d, static_cast<size_t>(count));
      use(PartOfVector{count}, i + k * kLanes, k,
          [&](hn::Vec<D>* sum, hn::Vec<D> value) HWY_ATTR { *sum = hn::IfThenElse(mask, fn(d, *sum, value), *sum); });
    }
  }

  template <class Last, class Lanes>
  static HWY_INLINE T FinishLanes([[maybe_unused]] Lanes d, hn::Vec<Lanes> lanes) {
    [[maybe_unused]] const Last fn;
#if HWY_TARGET != HWY_SCALAR  // which has no halves
    if constexpr (hn::MaxLanes(d) * sizeof(T) > 16) {
      const hn::Half<Lanes> half;
      return FinishLanes<Last>(half, fn(half, hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
    }
#endif
#if HWY_TARGET == HWY_SCALAR
    return hn::GetLane(lanes);
#else
    if constexpr (sizeof(T) == 4) {
      lanes = fn(d, lanes, hn::Shuffle1032(lanes));
      lanes = fn(d, lanes, hn::Shuffle2301(lanes));
    } else {
      lanes = fn(d, lanes, hn::Shuffle01(lanes));
    }
    return hn::GetLane(lanes);
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
