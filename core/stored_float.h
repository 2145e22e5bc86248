// float16 and bfloat16 in expressions: storage, in which nothing computes.
//
// Inputs and outputs of regions may be of them. Cast alone goes to them and from them: to float, which is exact, and
// from float, which rounds to nearest even, keeps denormals and gives infinity for what is beyond the greatest.
// Builders put a float between them and any other dtype. Formulas know neither: what they read is loaded as float, and
// what they give as float is stored as the declaration says or, where that says nothing, as all inputs that have a
// fraction are.
#pragma once

#include "stepnet/core/expr_scalar.h"
#include "stepnet/core/floating.h"

namespace stepnet {

// The number that is loaded, and what is stored of one. REQUIRES IsStoredFloat.
inline float Loaded(const ExprScalar& x) {
  return x.dtype == DType::kFloat16 ? ToFloat(x.As<Float16>()) : ToFloat(x.As<BFloat16>());
}
inline ExprScalar Stored(DType dtype, float x) {
  return dtype == DType::kFloat16 ? ScalarOf(ToFloat16(x)) : ScalarOf(ToBFloat16(x));
}

// A number of any dtype, rounded to double.
inline double DoubleOf(const ExprScalar& x) {
  if (IsStoredFloat(x.dtype)) return Loaded(x);
  return ForExprType(x.dtype, [&](auto zero) { return static_cast<double>(x.As<decltype(zero)>()); });
}

}  // namespace stepnet
