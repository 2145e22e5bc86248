// Loops over arrays in whole vectors: for kernels that are written with Highway and compiled once a target.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE. Functions passed
// in take a tag and an index, `[&](auto d, std::int64_t i) HWY_ATTR { … }`, and work on hn::Lanes(d) elements from i.
// What is left of an array goes through the same function one element at a time, so that an element's result does not
// depend on its place.
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "stepnet/core/cancellation.h"

#if defined(STEPNET_OPERATORS_VECTOR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_OPERATORS_VECTOR_LOOPS_INL_H_
#undef STEPNET_OPERATORS_VECTOR_LOOPS_INL_H_
#else
#define STEPNET_OPERATORS_VECTOR_LOOPS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls fn for all of [0, n).
template <typename T, class Fn>
HWY_INLINE void ForVectors(std::int64_t n, const Fn& fn) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t end = std::min(n, i + kWorkOfBlock);
    CountWork(end - i);
    for (; i + lanes <= end; i += lanes) fn(d, i);
    for (; i < end; ++i) fn(one, i);
  }
}

// The sum over [0, n) of the elements of the vectors that fn returns. Four partial sums hide the latency of additions.
template <typename T, class Fn>
HWY_INLINE T SumVectors(std::int64_t n, const Fn& fn) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  std::int64_t i = 0;
  for (std::int64_t begin = 0; begin < n; begin += kWorkOfBlock) {
    const std::int64_t end = std::min(n, begin + kWorkOfBlock);
    CountWork(end - begin);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      sum0 = hn::Add(sum0, fn(d, i));
      sum1 = hn::Add(sum1, fn(d, i + lanes));
      sum2 = hn::Add(sum2, fn(d, i + 2 * lanes));
      sum3 = hn::Add(sum3, fn(d, i + 3 * lanes));
    }
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, fn(d, i));
  T sum = 0;
  if (i > 0) sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < n; ++i) sum += hn::GetLane(fn(one, i));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
