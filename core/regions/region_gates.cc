// Kernels of what gates of cells and their gradients are made of.
#include "stepnet/core/regions/region_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_gates.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/regions/region_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

using Left = RegionSlope::Left;
using Top = RegionSlope::Top;

template <Left kLeft, Top kTop, bool kAdds, typename T>
void Slope(void* out, const void* a, const void* b, const void* c, const void* last, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  const T* u = static_cast<const T*>(last);
  T* to = static_cast<T*>(out);
  constexpr int kArrays = kTop == Top::kAny || kLeft == Left::kDifference || kAdds ? 5 : 4;
  ForVectors<T, true>(n, AsksAhead<T>(kArrays * n), [&](auto access, std::int64_t i) HWY_ATTR {
    const auto one = hn::Set(d, T{1});
    const auto value = access.Load(d, z + i);
    auto top = one;
    if constexpr (kTop == Top::kOwn) top = value;
    if constexpr (kTop == Top::kAny) top = access.Load(d, u + i);
    const auto slope = NegMulAddOf(d, value, value, top);
    auto factor = access.Load(d, y + i);
    if constexpr (kLeft == Left::kDifference) factor = hn::Sub(factor, access.Load(d, u + i));
    if constexpr (kLeft == Left::kRest) factor = hn::Sub(one, factor);
    const auto left = hn::Mul(access.Load(d, x + i), factor);
    if constexpr (kAdds) {
      access.Store(d, MulAddOf(d, left, slope, access.Load(d, u + i)), to + i);
    } else {
      access.Store(d, hn::Mul(left, slope), to + i);
    }
  });
}

template <Left kLeft, typename T>
RegionKernel SlopeOfLeft(Top top) {
  switch (top) {
    case Top::kOne: return Slope<kLeft, Top::kOne, false, T>;
    case Top::kOwn: return Slope<kLeft, Top::kOwn, false, T>;
    case Top::kAny: break;
  }
  return nullptr;
}

template <typename T>
RegionKernel SlopeOf(const RegionSlope& slope) {
  if (slope.left == Left::kProduct) {
    switch (slope.top) {
      case Top::kOne:
        return slope.adds ? Slope<Left::kProduct, Top::kOne, true, T> : Slope<Left::kProduct, Top::kOne, false, T>;
      case Top::kOwn:
        return slope.adds ? Slope<Left::kProduct, Top::kOwn, true, T> : Slope<Left::kProduct, Top::kOwn, false, T>;
      case Top::kAny: return slope.adds ? nullptr : Slope<Left::kProduct, Top::kAny, false, T>;
    }
  }
  if (slope.adds) return nullptr;
  return slope.left == Left::kRest ? SlopeOfLeft<Left::kRest, T>(slope.top)
                                   : SlopeOfLeft<Left::kDifference, T>(slope.top);
}

RegionKernel SlopeKernelForTarget(const RegionSlope& slope, DType dtype) {
  return dtype == DType::kFloat ? SlopeOf<float>(slope) : SlopeOf<double>(slope);
}

template <RegionGradient::Kind kKind, bool kAdds, typename T>
void Gradients(char* const* arrays, const int* numbers, std::int64_t n) {
  using Kind = RegionGradient::Kind;
  const hn::ScalableTag<T> d;
  const auto result = [&](int k) { return reinterpret_cast<T*>(arrays[numbers[k]]); };
  const auto operand = [&](int k) { return reinterpret_cast<const T*>(arrays[numbers[kMaxRegionResults + k]]); };
  T* const first = result(0);
  T* const second = result(1);
  [[maybe_unused]] T* const third = result(2);
  const T* const u = operand(0);
  const T* const a = operand(1);
  const T* const b = operand(2);
  [[maybe_unused]] const T* const c = operand(3);
  ForVectors<T, false>(n, false, [&](auto access, std::int64_t i) HWY_ATTR {
    const auto one = hn::Set(d, T{1});
    const auto gradient = access.Load(d, u + i);
    auto of_sigmoid = access.Load(d, a + i);
    if constexpr (kKind == Kind::kScale && kAdds) of_sigmoid = hn::Add(of_sigmoid, access.Load(d, c + i));
    const auto s = SigmoidFn()(d, of_sigmoid);
    const auto slope = NegMulAddOf(d, s, s, s);
    const auto other = access.Load(d, b + i);
    if constexpr (kKind == Kind::kGate) {
      const auto t = TanhFn()(d, other);
      const auto slope_of_tanh = NegMulAddOf(d, t, t, one);
      const auto left = hn::Mul(gradient, s);
      if constexpr (kAdds) {
        const auto sum = MulAddOf(d, left, slope_of_tanh, access.Load(d, c + i));
        access.Store(d, hn::Mul(hn::Mul(gradient, t), slope), first + i);
        access.Store(d, sum, second + i);
      } else {
        access.Store(d, hn::Mul(hn::Mul(gradient, t), slope), first + i);
        access.Store(d, hn::Mul(left, slope_of_tanh), second + i);
      }
    } else if constexpr (kKind == Kind::kScale) {
      access.Store(d, hn::Mul(gradient, s), first + i);
      access.Store(d, hn::Mul(hn::Mul(gradient, other), slope), second + i);
    } else {
      const auto t = TanhFn()(d, access.Load(d, c + i));
      access.Store(d, hn::Mul(gradient, s), first + i);
      access.Store(d, hn::Mul(hn::Mul(gradient, hn::Sub(other, t)), slope), second + i);
      access.Store(d, hn::Mul(hn::Mul(gradient, hn::Sub(one, s)), NegMulAddOf(d, t, t, one)), third + i);
    }
  });
}

template <typename T>
RegionSeveralKernel GradientsOf(const RegionGradient& gradient) {
  using Kind = RegionGradient::Kind;
  switch (gradient.kind) {
    case Kind::kGate: return gradient.adds ? Gradients<Kind::kGate, true, T> : Gradients<Kind::kGate, false, T>;
    case Kind::kScale: return gradient.adds ? Gradients<Kind::kScale, true, T> : Gradients<Kind::kScale, false, T>;
    case Kind::kBlend: break;
  }
  return Gradients<Kind::kBlend, false, T>;
}

RegionSeveralKernel GradientKernelForTarget(const RegionGradient& gradient, DType dtype) {
  return dtype == DType::kFloat ? GradientsOf<float>(gradient) : GradientsOf<double>(gradient);
}

struct Itself {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a) const {
    return a;
  }
};

template <class ShareFn, class F, typename T>
void Blend(void* out, const void* a, const void* b, const void* c, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(out);
  ForVectors<T, std::is_same_v<F, Itself>>(n, AsksAhead<T>(4 * n), [&](auto access, std::int64_t i) HWY_ATTR {
    const auto share = ShareFn()(d, access.Load(d, y + i));
    const auto rest = hn::Mul(hn::Sub(hn::Set(d, T{1}), share), F()(d, access.Load(d, z + i)));
    access.Store(d, MulAddOf(d, access.Load(d, x + i), share, rest), to + i);
  });
}

template <typename T>
RegionKernel BlendOf(RegionBlend blend) {
  switch (blend) {
    case RegionBlend::kPlain: return Blend<Itself, Itself, T>;
    case RegionBlend::kTanh: return Blend<Itself, TanhFn, T>;
    case RegionBlend::kSigmoidTanh: break;
  }
  return Blend<SigmoidFn, TanhFn, T>;
}

RegionKernel BlendKernelForTarget(RegionBlend blend, DType dtype) {
  return dtype == DType::kFloat ? BlendOf<float>(blend) : BlendOf<double>(blend);
}

template <typename T>
void Gate(void* out, const void* a, const void* b, const void* /*c*/, const void* /*last*/, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  T* to = static_cast<T*>(out);
  ForVectors<T, false>(n, AsksAhead<T>(3 * n), [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(d, hn::Mul(SigmoidFn()(d, access.Load(d, x + i)), TanhFn()(d, access.Load(d, y + i))), to + i);
  });
}

RegionKernel GateKernelForTarget(DType dtype) { return dtype == DType::kFloat ? Gate<float> : Gate<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SlopeKernelForTarget);
HWY_EXPORT(BlendKernelForTarget);
HWY_EXPORT(GradientKernelForTarget);
HWY_EXPORT(GateKernelForTarget);

RegionKernel SlopeKernelOf(const RegionSlope& slope, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(SlopeKernelForTarget)(slope, dtype);
}
RegionKernel BlendKernelOf(RegionBlend blend, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(BlendKernelForTarget)(blend, dtype);
}
RegionSeveralKernel GradientKernelOf(const RegionGradient& gradient, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(GradientKernelForTarget)(gradient, dtype);
}
RegionKernel GateKernelOf(DType dtype) { return HWY_DYNAMIC_DISPATCH(GateKernelForTarget)(dtype); }

}  // namespace stepnet
#endif  // HWY_ONCE
