// Exp, log, tanh, sigmoid, erfc, sin and cos of one vector: for kernels that are written with Highway and compiled once
// a target.
//
// To be included like Highway's own -inl.h files: after foreach_target.h, before HWY_BEFORE_NAMESPACE. Everything is
// correct for every lane by itself, so that kernels may compute lanes whose results they drop. Exp, tanh and
// sigmoid give a NaN of a NaN without looking for it: bounds let it through, and so does all that follows.
//
// exp: x = n ln 2 + r with |r| <= ln(2)/2, then exp(x) = 2^n (1 + p), p = expm1(r) by a polynomial.
// tanh: |tanh x| = -t / (2 + t) with t = expm1(-2|x|) = 2^n p + (2^n - 1), which is exact where it matters: small x.
// sigmoid: with e = exp(-|x|), 1 / (1 + e) for x >= 0 and e / (1 + e) below, so that nothing overflows.
// log: x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), s = f / (2 + f); log(1 + f) = f - s (f - s^2 R(s^2)).
// erfc, for x >= 0: exp(-x^2) P(t) / (1 + 9/8 x) with t = (x - K) / (x + K); below, 2 - erfc(-x). x is cut in two, of
// which the first has so few bits that its square is exact: otherwise the rounding of x^2 would be one of the result.
// After Shepherd, Laframboise, "Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x", Math. Comp. 36, 1981; with 9/8 in
// place of 2, P hardly changes near 0, where the rounding of t counts most.
// sin and cos, of floats alone: in double, x = n pi/2 + r with |r| <= pi/4, and by n the sine or cosine of r, or what
// it is less than 0, rounded once. pi/2 is cut in two, of which the first has so few bits that products with n are
// exact. The polynomials interpolate at the Chebyshev points of their ranges; the errors in
// tests/core/vector_math_test.cc are those measured over the whole range.
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "stepnet/core/arithmetic_vectors-inl.h"

#if defined(STEPNET_CORE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPNET_CORE_VECTOR_MATH_INL_H_
#undef STEPNET_CORE_VECTOR_MATH_INL_H_
#else
#define STEPNET_CORE_VECTOR_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct MathConstants;

template <>
struct MathConstants<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kBias = 127;
  static constexpr float kRound = 0x1.8p23f;      // added to and taken from x, rounds x to an integer
  static constexpr Bits kRoundBits = 0x4b400000;  // kRound as bits
  static constexpr float kLn2High = 0x1.63p-1f;   // products with exponents are exact
  static constexpr float kLn2Low = -0x1.bd0106p-13f;
  static constexpr float kExpMin = -104, kExpMax = 89;  // beyond, exp is 0 and infinity
  static constexpr float kTanhMax = 10;                 // beyond, tanh is 1
  static constexpr Bits kSqrtHalfBits = 0x3f3504f3;
  static constexpr float kMinNormal = 0x1p-126f;
  static constexpr float kLogScale = 0x1p24f;  // makes denormals normal
  static constexpr float kLogScaleExponent = 24;
  static constexpr float kExpm1[] = {0.5f, 0x1.5554dcp-3f, 0x1.55551ap-5f, 0x1.120ba2p-7f, 0x1.6d113cp-10f};
  static constexpr float kLog[] = {0x1.555556p-1f, 0x1.9999ecp-2f, 0x1.245c28p-2f, 0x1.ddd4dap-3f};
  static constexpr float kErfcMax = 10.125f;      // beyond, erfc is 0
  static constexpr Bits kHighHalf = 0xfffff000u;  // of a number: so many bits that its square is exact
  static constexpr float kErfcCenter = 2.5f;
  static constexpr float kErfc[] = {0x1.9b7e78p-1f,  -0x1.da07fp-3f,  0x1.bdd61p-5f,    0x1.163acap-5f,
                                    -0x1.4b6a2p-5f,  0x1.11782cp-6f,  -0x1.3ec6cap-11f, -0x1.146efcp-9f,
                                    0x1.37fa5ap-12f, 0x1.3b6052p-12f, 0x1.f4f6b8p-16f};
};

template <>
struct MathConstants<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kBias = 1023;
  static constexpr double kRound = 0x1.8p52;
  static constexpr Bits kRoundBits = 0x4338000000000000;
  static constexpr double kLn2High = 0x1.62e42feep-1;
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kExpMin = -746, kExpMax = 710;
  static constexpr double kTanhMax = 20;
  static constexpr Bits kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  static constexpr double kMinNormal = 0x1p-1022;
  static constexpr double kLogScale = 0x1p53;
  static constexpr double kLogScaleExponent = 53;
  static constexpr double kExpm1[] = {0.5,
                                      0x1.5555555555556p-3,
                                      0x1.5555555553d4fp-5,
                                      0x1.11111111109adp-7,
                                      0x1.6c16c17893833p-10,
                                      0x1.a01a01a7c8d47p-13,
                                      0x1.a019b8ef67c6cp-16,
                                      0x1.71de0d9c145d0p-19,
                                      0x1.2891a8c1d838dp-22,
                                      0x1.af38d53857513p-26};
  static constexpr double kLog[] = {0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2,
                                    0x1.c71c7201a55d7p-3, 0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c92p-3,
                                    0x1.0fbde0f4ad143p-3, 0x1.0c0aff044ab65p-3};
  static constexpr double kErfcMax = 27.25;
  static constexpr Bits kHighHalf = 0xfffffffff8000000u;
  static constexpr double kErfcCenter = 4;
  static constexpr double kErfc[] = {
      0x1.81ca5c6ac35d4p-1,   -0x1.88f7ef80ff62ep-3,  0x1.ab6160c8dc4a9p-4,   -0x1.12e8a665fa5e8p-5,
      -0x1.2c4186336791fp-7,  0x1.9b7c27f72f4abp-6,   -0x1.82f2f29807a40p-6,  0x1.f4f0daa9464f8p-7,
      -0x1.e0b2882614f79p-8,  0x1.452c043611699p-9,   -0x1.c8efa4c796621p-12, -0x1.452b08bbea4e4p-14,
      0x1.39f8af6b11311p-14,  -0x1.e887dbfa0581bp-17, -0x1.513eab7b1bf5cp-18, 0x1.97abcd0d1da01p-19,
      0x1.7ea8fdb3b5a57p-25,  -0x1.cb3db44aa6d2ep-22, 0x1.949d8c83667dcp-25,  0x1.f58aa2637b659p-25,
      -0x1.8e3c7d1a5cee4p-28, -0x1.e4186101dea73p-28, -0x1.cbfff0118e509p-31};
};

template <class D, typename T, int N>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, const T (&coefficients)[N]) {
  auto sum = hn::Set(d, coefficients[N - 1]);
  for (int i = N - 2; i >= 0; --i) sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[i]));
  return sum;
}

// x = n ln 2 + r: returns r, and n + kRound (whose low bits are n) by `rounded`. REQUIRES: n is small enough to be an
// exponent.
template <class D>
HWY_INLINE hn::Vec<D> ReducedBy2n(D d, hn::Vec<D> x, hn::Vec<D>* rounded) {
  using T = hn::TFromD<D>;
  using C = MathConstants<T>;
  const auto round = hn::Set(d, C::kRound);
  *rounded = hn::MulAdd(x, hn::Set(d, static_cast<T>(1.4426950408889634)), round);
  const auto n = hn::Sub(*rounded, round);
  const auto r = hn::NegMulAdd(n, hn::Set(d, C::kLn2High), x);
  return hn::NegMulAdd(n, hn::Set(d, C::kLn2Low), r);
}
// expm1(r) of such an r.
template <class D>
HWY_INLINE hn::Vec<D> Expm1OfReduced(D d, hn::Vec<D> r) {
  return hn::MulAdd(hn::Mul(r, r), Polynomial(d, r, MathConstants<hn::TFromD<D>>::kExpm1), r);
}
template <class D>
HWY_INLINE hn::Vec<D> ReducedExpm1(D d, hn::Vec<D> x, hn::Vec<D>* rounded) {
  const auto r = ReducedBy2n(d, x, rounded);
  return Expm1OfReduced(d, r);
}

#if HWY_TARGET <= HWY_AVX3
// y * 2^n, rounded once.
HWY_INLINE __m512 Scale(__m512 y, __m512 n) { return _mm512_scalef_ps(y, n); }
HWY_INLINE __m512d Scale(__m512d y, __m512d n) { return _mm512_scalef_pd(y, n); }
#endif

// y * 2^n, of a y that has the size of 1.
template <class D>
HWY_INLINE hn::Vec<D> Times2n(D d, hn::Vec<D> y, hn::Vec<D> rounded) {
  using C = MathConstants<hn::TFromD<D>>;
#if HWY_TARGET <= HWY_AVX3  // one instruction for the seven below
  return hn::Vec<D>{Scale(y.raw, hn::Sub(rounded, hn::Set(d, C::kRound)).raw)};
#else
  const hn::RebindToUnsigned<D> du;
  // 2^n as a product of two: n may exceed the exponents of normal numbers by some.
  const auto biased = hn::Sub(hn::BitCast(du, rounded), hn::Set(du, C::kRoundBits - 2 * C::kBias));
  const auto half = hn::ShiftRight<1>(biased);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(half));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::Sub(biased, half)));
  return hn::Mul(hn::Mul(y, scale1), scale2);
#endif
}

// exp(x) for kExpMin <= x <= kExpMax.
template <class D>
HWY_INLINE hn::Vec<D> ExpInRange(D d, hn::Vec<D> x) {
  hn::Vec<D> rounded;
  const auto p = ReducedExpm1(d, x, &rounded);
  return Times2n(d, hn::Add(p, hn::Set(d, hn::TFromD<D>{1})), rounded);
}

struct ExpFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using C = MathConstants<hn::TFromD<D>>;
    const auto bounded = GreaterOrSecond(hn::Set(d, C::kExpMin), x);
    return ExpInRange(d, LesserOrSecond(hn::Set(d, C::kExpMax), bounded));
  }
};

struct SigmoidFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using T = hn::TFromD<D>;
    const auto one = hn::Set(d, T{1});
    const auto lowest = hn::Set(d, MathConstants<T>::kExpMin);
    const auto e = ExpInRange(d, GreaterOrSecond(lowest, hn::Neg(hn::Abs(x))));
    return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
  }
};

struct TanhFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using T = hn::TFromD<D>;
    using C = MathConstants<T>;
    const hn::RebindToUnsigned<D> du;
    const auto magnitude = LesserOrSecond(hn::Set(d, C::kTanhMax), hn::Abs(x));
    hn::Vec<D> rounded;
    const auto p = ReducedExpm1(d, hn::Mul(magnitude, hn::Set(d, T{-2})), &rounded);
    const auto biased = hn::Sub(hn::BitCast(du, rounded), hn::Set(du, C::kRoundBits - C::kBias));
    const auto scale = hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(biased));
    const auto t = hn::MulAdd(scale, p, hn::Sub(scale, hn::Set(d, T{1})));
    return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, T{2}))), x);
  }
};

struct ErfcFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using T = hn::TFromD<D>;
    using C = MathConstants<T>;
    const hn::RebindToUnsigned<D> du;
    const auto one = hn::Set(d, T{1}), center = hn::Set(d, C::kErfcCenter);
    const auto magnitude = hn::Min(hn::Abs(x), hn::Set(d, C::kErfcMax));
    const auto high = hn::BitCast(d, hn::And(hn::BitCast(du, magnitude), hn::Set(du, C::kHighHalf)));
    const auto rest = hn::Mul(hn::Sub(high, magnitude), hn::Add(high, magnitude));
    hn::Vec<D> rounded;
    const auto r = hn::Add(ReducedBy2n(d, hn::Neg(hn::Mul(high, high)), &rounded), rest);
    const auto p = Polynomial(d, hn::Div(hn::Sub(magnitude, center), hn::Add(magnitude, center)), C::kErfc);
    const auto scaled = hn::Div(p, hn::MulAdd(magnitude, hn::Set(d, T{1.125}), one));
    const auto y = Times2n(d, hn::MulAdd(scaled, Expm1OfReduced(d, r), scaled), rounded);
    const auto of_negative = hn::Sub(hn::Set(d, T{2}), y);
    return hn::IfThenElse(hn::Eq(x, x), hn::IfThenElse(hn::Lt(x, hn::Zero(d)), of_negative, y), x);
  }
};

// The sine (`quarters` 0) or cosine (1) of doubles that are floats and less than kSinMax.
inline constexpr float kSinMax = 0x1p19f;
template <int kQuarters, class D>
HWY_INLINE hn::Vec<D> SinOfFloats(D d, hn::Vec<D> x) {
  constexpr double kSin[] = {-0x1.555555545dd83p-3, 0x1.11110deeb33b2p-7, -0x1.a013a6edc8f32p-13,
                             0x1.6dbdd26f56cb7p-19};
  constexpr double kCos[] = {-0x1.fffffffffe691p-2, 0x1.555555514ea4bp-5, -0x1.6c16bae4ef840p-10, 0x1.a0129816d86c5p-16,
                             -0x1.2474b4d8b6d5cp-22};
  const hn::RebindToUnsigned<D> du;
  const auto round = hn::Set(d, MathConstants<double>::kRound);
  const auto rounded = hn::MulAdd(x, hn::Set(d, 0x1.45f306dc9c883p-1), round);
  const auto n = hn::Sub(rounded, round);
  const auto high = hn::NegMulAdd(n, hn::Set(d, 0x1.921fb544p+0), x);
  const auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.0b4611a626331p-34), high);
  const auto square = hn::Mul(r, r);
  const auto sin = hn::MulAdd(hn::Mul(r, square), Polynomial(d, square, kSin), r);
  const auto cos = hn::MulAdd(square, Polynomial(d, square, kCos), hn::Set(d, 1.0));
  const auto quarters = hn::Add(hn::BitCast(du, rounded), hn::Set(du, std::uint64_t{kQuarters}));
  const auto is_odd = hn::RebindMask(d, hn::TestBit(quarters, hn::Set(du, std::uint64_t{1})));
  const auto sign = hn::ShiftLeft<62>(hn::And(quarters, hn::Set(du, std::uint64_t{2})));
  return hn::Xor(hn::IfThenElse(is_odd, cos, sin), hn::BitCast(d, sign));
}

// The C library computes the rest.
template <int kQuarters, class D>
HWY_NOINLINE hn::Vec<D> WithLargeSin(D d, hn::Vec<D> x, hn::Vec<D> y) {
  HWY_ALIGN float in[hn::MaxLanes(d)], out[hn::MaxLanes(d)];
  hn::Store(x, d, in);
  hn::Store(y, d, out);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (std::fabs(in[i]) < kSinMax) continue;
    const double value = in[i];
    out[i] = static_cast<float>(kQuarters == 0 ? std::sin(value) : std::cos(value));
  }
  return hn::Load(d, out);
}

template <int kQuarters>
struct SinOrCosFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    const auto in_range = hn::Lt(hn::Abs(x), hn::Set(d, kSinMax));
#if HWY_TARGET == HWY_SCALAR  // which has no halves
    const hn::Rebind<double, D> doubles;
    auto y = hn::DemoteTo(d, SinOfFloats<kQuarters>(doubles, hn::PromoteTo(doubles, x)));
#else
    const hn::Half<D> half;
    const hn::Rebind<double, decltype(half)> doubles;
    const auto of_half = [&](auto floats) HWY_ATTR __attribute__((always_inline)) {
      return hn::DemoteTo(half, SinOfFloats<kQuarters>(doubles, hn::PromoteTo(doubles, floats)));
    };
    auto y = hn::Combine(d, of_half(hn::UpperHalf(half, x)), of_half(hn::LowerHalf(half, x)));
#endif
    if constexpr (kQuarters == 0) y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // n takes the sign of -0
    return HWY_LIKELY(hn::AllTrue(d, in_range)) ? y : WithLargeSin<kQuarters>(d, x, y);
  }
};
using SinFn = SinOrCosFn<0>;
using CosFn = SinOrCosFn<1>;

struct LogFn {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x) const {
    using T = hn::TFromD<D>;
    using C = MathConstants<T>;
    const hn::RebindToUnsigned<D> du;
    const auto zero = hn::Zero(d);
    const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
    const auto is_small = hn::Lt(x, hn::Set(d, C::kMinNormal));
    const auto normal = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, C::kLogScale)), x);
    // Taking the bits of sqrt(1/2) off first moves the cut between exponents there; the bias keeps k + kBias positive.
    const auto shifted = hn::Add(hn::Sub(hn::BitCast(du, normal), hn::Set(du, C::kSqrtHalfBits)),
                                 hn::Set(du, C::kBias << C::kMantissaBits));
    const auto biased = hn::ShiftRight<C::kMantissaBits>(shifted);
    // An integer below 2^kMantissaBits in the low bits of 2^kMantissaBits is that many.
    const auto unit_bits = hn::Set(du, (C::kBias + C::kMantissaBits) << C::kMantissaBits);
    auto k = hn::Sub(hn::BitCast(d, hn::Or(biased, unit_bits)),
                     hn::Set(d, static_cast<T>((typename C::Bits{1} << C::kMantissaBits) + C::kBias)));
    const auto mantissa_mask = hn::Set(du, (typename C::Bits{1} << C::kMantissaBits) - 1);
    const auto m = hn::BitCast(d, hn::Add(hn::And(shifted, mantissa_mask), hn::Set(du, C::kSqrtHalfBits)));
    k = hn::Sub(k, hn::IfThenElseZero(is_small, hn::Set(d, C::kLogScaleExponent)));

    const auto f = hn::Sub(m, hn::Set(d, T{1}));
    const auto s = hn::Div(f, hn::Add(f, hn::Set(d, T{2})));
    const auto z = hn::Mul(s, s);
    const auto inner = hn::NegMulAdd(z, Polynomial(d, z, C::kLog), f);
    const auto low = hn::MulSub(s, inner, hn::Mul(k, hn::Set(d, C::kLn2Low)));
    auto y = hn::MulAdd(k, hn::Set(d, C::kLn2High), hn::Sub(f, low));
    y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
    y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), y);
    return hn::IfThenElse(hn::And(hn::Eq(x, x), hn::Lt(x, infinity)), y, x);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#endif  // STEPNET_CORE_VECTOR_MATH_INL_H_
