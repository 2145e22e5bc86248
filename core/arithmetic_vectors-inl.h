// Arithmetic of vectors, as functions to be handed to loops.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE.
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

#if defined(STEPNET_CORE_ARITHMETIC_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_ARITHMETIC_VECTORS_INL_H_
#undef STEPNET_CORE_ARITHMETIC_VECTORS_INL_H_
#else
#define STEPNET_CORE_ARITHMETIC_VECTORS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct AbsVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return hn::Abs(a);
  }
};
struct SqrtVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return hn::Sqrt(a);
  }
};
struct AddVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
struct SubtractVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Sub(a, b);
  }
};
struct MultiplyVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct DivideVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Div(a, b);
  }
};
// a * b + c, rounded once.
template <class D, class V>
HWY_INLINE V MulAddOf([[maybe_unused]] D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else  // hn::MulAdd would round twice
  using T = hn::TFromD<D>;
  HWY_ALIGN T x[hn::MaxLanes(d)], y[hn::MaxLanes(d)], z[hn::MaxLanes(d)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::MaxLanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}
// c - a * b, rounded once.
template <class D, class V>
HWY_INLINE V NegMulAddOf(D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::NegMulAdd(a, b, c);
#else
  return MulAddOf(d, hn::Neg(a), b, c);
#endif
}

// a < b ? a : b, and a > b ? a : b: comparisons with NaN are false. On x86 these are instructions, which targets that
// do without them do not copy.
template <class V>
HWY_INLINE V LesserOrSecond(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}
template <class V>
HWY_INLINE V GreaterOrSecond(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(a, b);
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}

// A NaN in a is kept by the first choice, one in b by the second.
struct MinVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Eq(a, a), LesserOrSecond(a, b), a);
  }
};
struct MaxVectors {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::IfThenElse(hn::Eq(a, a), GreaterOrSecond(a, b), a);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // per target
