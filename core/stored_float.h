// float16 and bfloat16 in expressions: storage, in which nothing computes.
//
// Inputs and outputs of regions may be of them. Cast alone goes to them and from them: to float, which is exact, and
// from numbers, which rounds once, to nearest even, keeps denormals and gives infinity for what is beyond the greatest.
// Builders put a float between them and bool, and where they are read. Sums over rows that are stored in them are added
// up as floats (core/regions/region_sums.h). Formulas know neither: what they read is loaded as float, and what they
// give as float is stored as the declaration says or, where that says nothing, as all inputs that have a fraction are.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/floating.h"

namespace stepnet {

// The number that is loaded, and what is stored of one. REQUIRES IsStoredFloat.
inline float Loaded(const ExprScalar& x) {
  return x.dtype == DType::kFloat16 ? ToFloat(x.As<Float16>()) : ToFloat(x.As<BFloat16>());
}
inline ExprScalar Stored(DType dtype, float x) {
  return dtype == DType::kFloat16 ? ScalarOf(ToFloat16(x)) : ScalarOf(ToBFloat16(x));
}

// `x` as the float that is rounded to 16 bits as x itself would be: towards 0, and to the odd one of two where that
// loses something, so that it neither meets the middle between two numbers of 16 bits nor leaves it.
// Source: Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
// IEEE Transactions on Computers 57(4), 2008.
template <typename T>
inline float FloatToStore(T x) {
  if constexpr (std::is_same_v<T, double>) {
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) == x || std::isnan(x)) return nearest;
    const bool is_beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - (is_beyond ? 1u : 0u)) | 1u);
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    constexpr std::int64_t kExact = std::int64_t{1} << 53;  // what a double holds
    constexpr std::int64_t kLow = (1 << 11) - 1;            // the bits that one beyond that may not
    if (-kExact <= x && x <= kExact) return FloatToStore(static_cast<double>(x));
    return FloatToStore(static_cast<double>((x & ~kLow) | ((x & kLow) != 0 ? kLow + 1 : 0)));
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return FloatToStore(static_cast<double>(x));
  } else {
    return static_cast<float>(x);
  }
}

// The number as Float16 or BFloat16, rounded once.
template <typename To, typename From>
inline To StoredAs(From x) {
  if constexpr (std::is_same_v<To, Float16>) {
    return ToFloat16(FloatToStore(x));
  } else {
    return ToBFloat16(FloatToStore(x));
  }
}

// A number of any dtype, rounded to double.
inline double DoubleOf(const ExprScalar& x) {
  if (IsStoredFloat(x.dtype)) return Loaded(x);
  return ForExprType(x.dtype, [&](auto zero) { return static_cast<double>(x.As<decltype(zero)>()); });
}

}  // namespace stepnet
