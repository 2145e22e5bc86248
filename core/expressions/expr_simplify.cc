#include "stepnet/core/expressions/expr_simplify.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/stored_float.h"

namespace stepnet {
namespace {

// What the op gives for constants; nothing where that is not known yet.
std::optional<Expr> Folded(const ExprDraft& draft, DType result) {
  switch (draft.op) {
    case ExprOp::kIndex:
    case ExprOp::kRequire:
    case ExprOp::kRowSum:
    case ExprOp::kRowMax: return {};
    default: break;
  }
  std::array<ExprScalar, kMaxExprOperands> values;
  for (int i = 0; i < draft.count; ++i) {
    const Expr& operand = draft.operands[i];
    if (!operand.IsConstant()) return {};
    values[i] = {.dtype = operand->dtype, .bits = operand->bits};
  }
  const bool divides = draft.op == ExprOp::kDivide || draft.op == ExprOp::kMod;
  if (divides && values[1].bits == 0 && !IsFloatOrDouble(draft.b()->dtype))
    return {};  // that it divides by 0 has to be seen
  return ConstantOf(EvaluatePrimitive(draft.op, result, {values.data(), static_cast<size_t>(draft.count)}));
}

// Whether expr is the constant `value`, with the sign of a 0.
bool IsExactly(const Expr& expr, double value) {
  if (!expr.IsConstant()) return false;
  const ExprScalar constant{.dtype = expr->dtype, .bits = expr->bits};
  return ForExprType(expr->dtype, [&](auto zero) {
    const auto x = constant.As<decltype(zero)>();
    const double is = static_cast<double>(x);
    return is == value && std::signbit(is) == std::signbit(value) && static_cast<decltype(zero)>(is) == x;
  });
}

Expr OperandOf(const Expr& expr, int i) { return Expr::Of(expr->operands[i]); }

std::optional<Expr> SimplerSum(const ExprDraft& x) {
  const Expr &a = x.a(), &b = x.b();
  const bool is_add = x.op == ExprOp::kAdd;
  // -0 is what changes nothing: -0 + 0 is 0. A difference changes nothing for 0.
  const double neutral = IsFloatOrDouble(a->dtype) && is_add ? -0.0 : 0.0;
  if (IsExactly(b, neutral)) return a;
  if (is_add && IsExactly(a, neutral)) return b;
  if (!is_add && !IsFloatOrDouble(a->dtype) && a.Is(b) && !a->has_require()) return Expr::Constant(a->dtype, 0);
  if (b->op == ExprOp::kNegate) return is_add ? a - OperandOf(b, 0) : a + OperandOf(b, 0);
  return {};
}

std::optional<Expr> SimplerProduct(const ExprDraft& x) {
  const Expr &a = x.a(), &b = x.b();
  if (IsExactly(b, 1)) return a;
  if (IsExactly(b, -1)) return -a;
  if (x.op == ExprOp::kDivide) return {};
  if (IsExactly(a, 1)) return b;
  if (IsExactly(a, -1)) return -b;
  if (IsFloatOrDouble(a->dtype)) return {};
  if (IsExactly(a, 0) && !b->has_require()) return a;
  if (IsExactly(b, 0) && !a->has_require()) return b;
  return {};
}

// fma(1, b, c) rounds b + c once, as + does; a * b + -0 is a * b.
std::optional<Expr> SimplerMulAdd(const ExprDraft& x) {
  if (IsExactly(x.a(), 1)) return x.b() + x.c();
  if (IsExactly(x.b(), 1)) return x.a() + x.c();
  if (IsExactly(x.c(), IsFloatOrDouble(x.c()->dtype) ? -0.0 : 0.0)) return x.a() * x.b();
  return {};
}

std::optional<Expr> SimplerLogic(const ExprDraft& x) {
  const Expr &a = x.a(), &b = x.b();
  const bool decides = x.op == ExprOp::kOr;  // whatever the other one is
  if (a.Is(b)) return a;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->IsConstant()) continue;
    if ((*one)->bits != static_cast<std::uint64_t>(decides)) return *other;
    if (!(*other)->has_require()) return *one;
  }
  return {};
}

std::optional<Expr> SimplerNot(const Expr& a) {
  if (a->op == ExprOp::kNot) return OperandOf(a, 0);
  if (a->op == ExprOp::kEqual) return NotEqual(OperandOf(a, 0), OperandOf(a, 1));
  if (a->op == ExprOp::kNotEqual) return Equal(OperandOf(a, 0), OperandOf(a, 1));
  return {};
}

std::optional<Expr> SimplerWhere(const ExprDraft& x) {
  const Expr &condition = x.a(), &then = x.b(), &otherwise = x.c();
  if (then.Is(otherwise) && !condition->has_require()) return then;
  if (condition.IsConstant()) {
    const auto& [taken, left] = condition->bits != 0 ? std::pair(then, otherwise) : std::pair(otherwise, then);
    if (!left->has_require()) return taken;
  }
  if (condition->op == ExprOp::kNot) return Where(OperandOf(condition, 0), otherwise, then);
  return {};
}

// Whether every value of `from` has a value of `to` of its own.
bool Holds(DType to, DType from) {
  if (to == from || from == DType::kBool) return true;
  switch (to) {
    case DType::kFloat: return IsStoredFloat(from);
    case DType::kDouble: return from == DType::kFloat || from == DType::kInt32;
    case DType::kInt64: return from == DType::kInt32;
    default: return false;
  }
}

std::optional<Expr> SimplerCast(const ExprDraft& x) {
  const DType to = x.parts.dtype;
  if (x.a()->dtype == to) return x.a();
  if (x.a()->op != ExprOp::kCast) return {};
  const Expr source = OperandOf(x.a(), 0);
  if (!Holds(x.a()->dtype, source->dtype)) return {};
  if (source->dtype == to) return source;
  if (IsStoredFloat(to) && !CastNeedsFloat(to, source->dtype)) return Cast(to, source);
  return {};
}

std::optional<Expr> Simpler(const ExprDraft& x) {
  const Expr& a = x.a();
  switch (x.op) {
    case ExprOp::kAdd:
    case ExprOp::kSubtract: return SimplerSum(x);
    case ExprOp::kMultiply:
    case ExprOp::kDivide: return SimplerProduct(x);
    case ExprOp::kMulAdd: return SimplerMulAdd(x);
    case ExprOp::kMin:
    case ExprOp::kMax:
      if (a.Is(x.b())) return a;
      return {};
    case ExprOp::kPow:
      if (IsExactly(x.b(), 1)) return a;
      if (IsExactly(x.b(), 0) && !a->has_require()) return Expr::Constant(a->dtype, 1);  // of NaN as well
      return {};
    case ExprOp::kNegate:
      if (a->op == ExprOp::kNegate) return OperandOf(a, 0);
      return {};
    case ExprOp::kAbs:
      if (a->op == ExprOp::kAbs) return a;
      if (a->op == ExprOp::kNegate) return Abs(OperandOf(a, 0));
      return {};
    case ExprOp::kEqual:
      if (a.Is(x.b()) && !IsFloatOrDouble(a->dtype) && !a->has_require()) return Expr(true);
      return {};
    case ExprOp::kNotEqual:
      if (a.Is(x.b()) && !IsFloatOrDouble(a->dtype) && !a->has_require()) return Expr(false);
      return {};
    case ExprOp::kAnd:
    case ExprOp::kOr: return SimplerLogic(x);
    case ExprOp::kNot: return SimplerNot(a);
    case ExprOp::kWhere: return SimplerWhere(x);
    case ExprOp::kCast: return SimplerCast(x);
    default: return {};
  }
}

}  // namespace

std::optional<Expr> Simplified(const ExprDraft& draft, DType result) {
  if (std::optional<Expr> constant = Folded(draft, result)) return constant;
  return Simpler(draft);
}

bool CastNeedsFloat(DType to, DType from) {
  if (to == from) return false;
  return (IsStoredFloat(to) && from == DType::kBool) || (IsStoredFloat(from) && to != DType::kFloat);
}

}  // namespace stepnet
