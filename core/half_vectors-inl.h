// float16 and bfloat16 as vectors of their bits, and the floats that are loaded from them and stored in them: bit for
// bit what ToFloat, ToFloat16 and ToBFloat16 of core/tensor.h give, but for what a NaN holds.
// Source of the arithmetic on bits: Giesen, "float->half variants", https://gist.github.com/rygorous/2156668.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE.
#include <hwy/highway.h>

#include <cstdint>

#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/tensor.h"

#if defined(STEPNET_CORE_HALF_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_HALF_VECTORS_INL_H_
#undef STEPNET_CORE_HALF_VECTORS_INL_H_
#else
#define STEPNET_CORE_HALF_VECTORS_INL_H_
#endif

// Whether the machine converts float16 itself. What Highway has for others cuts off where it should round.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define STEPNET_CONVERTS_FLOAT16 1
#else
#define STEPNET_CONVERTS_FLOAT16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of as many 16-bit numbers as D has floats.
template <class D>
using StoredBits = hn::Rebind<std::uint16_t, D>;

struct LoadFloat16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<StoredBits<D>> stored) const {
#if STEPNET_CONVERTS_FLOAT16
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), stored));
#else
    const hn::RebindToSigned<D> i;
    const auto bits = hn::PromoteTo(i, stored);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(i, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(i, 0x7fff)));
    const auto bias = hn::Set(i, (127 - 15) << 23);
    const auto normal = hn::Add(magnitude, bias);
    // This counts as if 0 had the exponent of 1, whose leading 1 is taken off again.
    const auto one_more = hn::BitCast(d, hn::Add(normal, hn::Set(i, 1 << 23)));
    const auto denormal = hn::BitCast(i, hn::Sub(one_more, hn::Set(d, 0x1p-14f)));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i, 1 << 23)), denormal, normal);
    const auto is_finite = hn::Lt(magnitude, hn::Set(i, 0x1f << 23));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, hn::Add(normal, bias))));
#endif
  }
};

struct StoreFloat16 {
  template <class D>
  HWY_INLINE hn::Vec<StoredBits<D>> operator()(D d, hn::Vec<D> value) const {
    const StoredBits<D> to;
#if STEPNET_CONVERTS_FLOAT16
    (void)d;
    return hn::BitCast(to, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
#else
    const hn::RebindToSigned<D> i;
    const auto magnitude = hn::BitCast(i, hn::Abs(value));
    const auto sign = hn::BitCast(
        i, hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D>(), hn::Xor(hn::BitCast(i, value), magnitude))));
    const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(i, 1));
    const auto half_less = hn::Set(i, 0xfff - ((127 - 15) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, half_less), is_odd));
    // The sum has the units of denormals, 2^-24, as its last bit.
    const auto in_units = hn::BitCast(i, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f)));
    const auto denormal = hn::Sub(in_units, hn::Set(i, 126 << 23));
    const auto beyond =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(i, 0xff << 23)), hn::Set(i, 0x7e00), hn::Set(i, 0x7c00));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(i, (127 - 14) << 23)), denormal, normal);
    const auto is_finite = hn::Lt(magnitude, hn::Set(i, (127 + 16) << 23));
    return hn::DemoteTo(to, hn::Or(sign, hn::IfThenElse(is_finite, finite, beyond)));
#endif
  }
};

struct LoadBFloat16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<StoredBits<D>> stored) const {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), stored)));
  }
};

struct StoreBFloat16 {
  template <class D>
  HWY_INLINE hn::Vec<StoredBits<D>> operator()(D /*d*/, hn::Vec<D> value) const {
    const hn::RebindToSigned<D> i;
    const hn::RebindToUnsigned<D> u;
    const auto bits = hn::BitCast(u, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto is_odd = hn::And(upper, hn::Set(u, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u, 0x7fff)), is_odd));
    const auto is_nan = hn::Gt(hn::BitCast(i, hn::Abs(value)), hn::Set(i, 0xff << 23));
    const auto quiet = hn::BitCast(i, hn::Or(upper, hn::Set(u, 0x40)));
    return hn::DemoteTo(StoredBits<D>(), hn::IfThenElse(is_nan, quiet, hn::BitCast(i, rounded)));
  }
};

// A vector of elements in memory, of what D has or in bfloat16.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadElements(D d, const T* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const BFloat16* from) {
  return LoadBFloat16()(d, hn::LoadU(StoredBits<D>(), &from->bits));
}

// As LoadPart of core/partial_vectors-inl.h, of elements in bfloat16.
template <class D>
HWY_INLINE hn::Vec<D> LoadPart(D d, const BFloat16* from, std::int64_t count) {
  return LoadBFloat16()(d, LoadPart(StoredBits<D>(), &from->bits, count));
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#undef STEPNET_CONVERTS_FLOAT16
#endif  // per target
