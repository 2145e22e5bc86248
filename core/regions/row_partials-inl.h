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
    return FinishVector<Last>(vectors[0]);
  }
  template <class Last = Fn>
  static HWY_INLINE T FinishVector(hn::Vec<D> vector) {
    return FinishLanes<Last>(D(), vector);
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

#if HWY_TARGET != HWY_SCALAR  // which has no halves
// One vector of what Fn makes of the two halves of each of these: of their lanes that are kDistance from each other,
// where a and b consist of halves already.
template <class Fn, int kDistance, class D, class V = hn::Vec<D>>
HWY_INLINE V HalvesOf(D d, V a, V b) {
  constexpr size_t kBytes = kDistance * sizeof(hn::TFromD<D>), kAll = hn::MaxLanes(d) * sizeof(hn::TFromD<D>);
  const Fn fn;
  if constexpr (2 * kBytes == kAll && kAll > 16) {
    return fn(d, hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  } else if constexpr (kBytes >= 16) {
    return fn(d, hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
  } else if constexpr (kBytes == 8) {
    const hn::Repartition<double, D> pairs;
    const auto x = hn::BitCast(pairs, a), y = hn::BitCast(pairs, b);
    return fn(d, hn::BitCast(d, hn::InterleaveLower(pairs, x, y)), hn::BitCast(d, hn::InterleaveUpper(pairs, x, y)));
  } else {
    return fn(d, hn::OddEven(hn::DupEven(b), a), hn::OddEven(b, hn::DupOdd(a)));
  }
}
#endif

// Lane r is what Partials::Finish makes of vector r: as many vectors as one has lanes, one after the other.
template <class Fn, int kDistance = 1, class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> FinishVectors(D d, const T* vectors) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Load(d, vectors);
#else
  constexpr auto kLanes = static_cast<int>(hn::MaxLanes(d));
  if constexpr (kDistance == kLanes) {
    return hn::Load(d, vectors);
  } else {
    return HalvesOf<Fn, kDistance>(d, FinishVectors<Fn, 2 * kDistance>(d, vectors),
                                   FinishVectors<Fn, 2 * kDistance>(d, vectors + kDistance * kLanes));
  }
#endif
}

// A row of n elements, n > kVectors / 2 vectors and no more than kVectors, as one vector, as Partials::Finish begins:
// at(access, j) is a vector of the elements from j on.
template <class Fn, int kVectors, class D, class V = hn::Vec<D>, class At>
HWY_INLINE V VectorOfRow(D d, V first, std::int64_t n, const At& at) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Fn fn;
  V vectors[kVectors];
  HWY_UNROLL(16)
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t j = k * kLanes, count = n - j;
    if (k < kVectors / 2 || count >= kLanes) {
      vectors[k] = at(WholeVectors(), j);
    } else if (count > 0) {
      const PartOfVector part{count};
      vectors[k] = part.KeepOr(d, at(part, j), first);
    } else {
      vectors[k] = first;
    }
  }
  HWY_UNROLL(8)
  for (int width = kVectors / 2; width > 0; width /= 2) {
    HWY_UNROLL(16)
    for (int k = 0; k < width; ++k) vectors[k] = fn(d, vectors[k], vectors[k + width]);
  }
  return vectors[0];
}

// The reductions of short rows, of kRowPartials elements at most, with the bits of Partials: of as many rows at once as
// a vector has lanes. at(access, row, j) is a vector of the elements of a row from j on.
template <class Fn, typename T, int kVectors, class At>
HWY_INLINE void ReduceShortRows(T* out, T first, std::int64_t rows, std::int64_t n, const At& at) {
  using P = Partials<Fn, T>;
  const typename P::D d;
  constexpr std::int64_t kLanes = P::kLanes;
  if constexpr (2 * kVectors <= P::kVectors) {
    if (n > kVectors * kLanes) return ReduceShortRows<Fn, T, 2 * kVectors>(out, first, rows, n, at);
  }
  const auto firsts = hn::Set(d, first);
  const Fn fn;
  const auto vector_of = [&](std::int64_t row) HWY_ATTR {
    return VectorOfRow<Fn, kVectors>(d, firsts, n,
                                     [&](auto access, std::int64_t j) HWY_ATTR { return at(access, row, j); });
  };
  std::int64_t row = 0;
  for (; row + kLanes <= rows; row += kLanes) {
    HWY_ALIGN T vectors[kLanes * kLanes];
    for (std::int64_t r = 0; r < kLanes; ++r) hn::Store(vector_of(row + r), d, vectors + r * kLanes);
    hn::StoreU(fn(d, firsts, FinishVectors<Fn>(d, vectors)), d, out + row);
  }
  for (; row < rows; ++row) out[row] = P::FinishVector(fn(d, firsts, vector_of(row)));
}
// The reductions of rows of n elements: at(access, row, j) is a vector of those of a row from j on.
template <class Fn, typename T, class At>
HWY_INLINE void ReduceRowsOf(T* out, T first, std::int64_t rows, std::int64_t n, const At& at) {
  if (n <= kRowPartials) return ReduceShortRows<Fn, T, 1>(out, first, rows, n, at);
  for (std::int64_t row = 0; row < rows; ++row) {
    Partials<Fn, T> partials(first);
    partials.AddAll(n, [&](auto access, std::int64_t j, int /*k*/) HWY_ATTR { return at(access, row, j); });
    out[row] = partials.Finish(n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
