// The table of primitives that are a function of one float or double of the C library. Their meaning, the kernels of
// all targets and the name in texts follow from a line of it; docs/add_a_primitive.md says what else there is to do.
// Sin and cos of floats are those of vector_math.h, as definition and on vectors: one by one they take several times as
// long.
#pragma once

#include <cmath>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

struct ExprFunction {
  ExprOp op;
  const char* name;       // in texts
  bool is_exact = false;  // else the last bits are the library's own business
  float (*of_float)(float) = nullptr;
  double (*of_double)(double) = nullptr;

  template <typename Fn>
  constexpr ExprFunction(ExprOp op, const char* name, bool is_exact, Fn fn)
      : op(op), name(name), is_exact(is_exact), of_float(fn), of_double(fn) {}

  template <typename T>
  constexpr auto Of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return of_float;
    else
      return of_double;
  }
};

inline constexpr ExprFunction kExprFunctions[] = {
    {ExprOp::kExpm1, "expm1", false, [](auto x) { return std::expm1(x); }},
    {ExprOp::kLog1p, "log1p", false, [](auto x) { return std::log1p(x); }},
    {ExprOp::kErf, "erf", false, [](auto x) { return std::erf(x); }},
    {ExprOp::kSin, "sin", false, [](auto x) { return std::sin(x); }},
    {ExprOp::kCos, "cos", false, [](auto x) { return std::cos(x); }},
    {ExprOp::kFloor, "floor", true, [](auto x) { return std::floor(x); }},
    {ExprOp::kCeil, "ceil", true, [](auto x) { return std::ceil(x); }},
    {ExprOp::kRound, "round", true, [](auto x) { return std::nearbyint(x); }},
};

// Null for other ops.
constexpr const ExprFunction* FindExprFunction(ExprOp op) {
  for (const ExprFunction& function : kExprFunctions) {
    if (function.op == op) return &function;
  }
  return nullptr;
}

}  // namespace stepnet
