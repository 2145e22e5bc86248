#include "stepnet/operators/stored_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/stored_weights.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/half_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void PromoteElements(std::int64_t n, const BFloat16* from, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(LoadElements(d, from + i), d, to + i);
  }
  for (; i < n; ++i) to[i] = ToFloat(from[i]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {
HWY_EXPORT(PromoteElements);
}  // namespace

void Promote(std::int64_t n, const BFloat16* from, float* to) { HWY_DYNAMIC_DISPATCH(PromoteElements)(n, from, to); }

}  // namespace stepnet
#endif  // HWY_ONCE
