// What primitives compute, on single numbers: the definition that constants are folded by, that EvaluateRow runs and
// that the loops of kernels without vector code of their own repeat. core/expressions/expr.h has the meanings in words.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stepnet/core/tensor.h"

namespace stepnet {

// A number of a dtype: its bits, from the lowest.
struct ExprScalar {
  DType dtype = DType::kFloat;
  std::uint64_t bits = 0;

  template <typename T>
  T As() const {
    T value;
    if constexpr (std::is_same_v<T, bool>) {
      value = bits != 0;
    } else {
      std::memcpy(&value, &bits, sizeof(T));
    }
    return value;
  }
};

template <typename T>
ExprScalar ScalarOf(T value) {
  ExprScalar scalar{.dtype = kDTypeOf<T>};
  std::memcpy(&scalar.bits, &value, sizeof(T));
  return scalar;
}

// Calls fn with a value of the C++ type of `dtype`, which is one that expressions have.
template <typename Fn>
decltype(auto) ForExprType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat: return fn(float{});
    case DType::kDouble: return fn(double{});
    case DType::kInt32: return fn(std::int32_t{});
    case DType::kInt64: return fn(std::int64_t{});
    default: return fn(bool{});
  }
}

// Scalar functions of the primitives. Those that vector_math.h computes are not here, nor those of expr_functions.h.
namespace scalar {

template <typename T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
inline T Add(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a + b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <typename T>
inline T Subtract(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a - b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <typename T>
inline T Multiply(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a * b;
  else
    return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <typename T>
inline T Negate(T a) {
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
}
template <typename T>
inline T Divide(T a, T b) {
  if constexpr (kIsFloat<T>)
    return a / b;
  else
    return b == 0 ? T{0} : b == -1 ? Negate(a) : static_cast<T>(a / b);  // the lowest / -1 traps
}
template <typename T>
inline T Mod(T a, T b) {
  if constexpr (kIsFloat<T>)
    return std::fmod(a, b);
  else
    return b == 0 || b == -1 ? T{0} : static_cast<T>(a % b);
}
template <typename T>
inline T Min(T a, T b) {
  return a != a ? a : a < b ? a : b;
}
template <typename T>
inline T Max(T a, T b) {
  return a != a ? a : a > b ? a : b;
}
template <typename T>
inline T MulAdd(T a, T b, T c) {
  if constexpr (kIsFloat<T>)
    return std::fma(a, b, c);
  else
    return Add(Multiply(a, b), c);
}
template <typename T>
inline T Abs(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a);
  else
    return a < 0 ? Negate(a) : a;
}
template <typename T>
inline T Sign(T a) {
  return a > 0 ? T{1} : a < 0 ? T{-1} : a == 0 ? T{0} : a;
}

// The C library gives NaN in both cases where the other operand is a NaN that signals, as 16 bits may hold one.
template <typename T>
inline T Pow(T a, T b) {
  return b == 0 || a == 1 ? T{1} : std::pow(a, b);
}

template <typename T>
inline bool Equal(T a, T b) {
  return a == b;
}
template <typename T>
inline bool NotEqual(T a, T b) {
  return a != b;
}
template <typename T>
inline bool Less(T a, T b) {
  return a < b;
}
template <typename T>
inline bool LessEqual(T a, T b) {
  return a <= b;
}

// A random word as a number in [0, 1).
template <typename T>
inline T UniformOf(std::uint32_t word) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(word >> 8) * 0x1p-24f;
  else
    return static_cast<double>(word) * 0x1p-32;
}

template <typename To, typename From>
inline To Cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_integral_v<To> && kIsFloat<From>) {
    // The bounds as floating-point numbers: the lowest, and 2^n above, exactly.
    constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
    constexpr auto kAbove = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
    if (x != x) return 0;
    if (x < kLow) return std::numeric_limits<To>::min();
    return x >= kAbove ? std::numeric_limits<To>::max() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace scalar
}  // namespace stepnet
