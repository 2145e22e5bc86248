#include "stepnet/core/derivative_flow.h"

namespace stepnet {
namespace {

// Whether of two conditions, under a third one (which may be none), always one holds and the other does not.
bool AreOpposite(const Expr& a, const Expr& b, Expr* decides, Expr* shared) {
  if (Not(a).Is(b)) {
    *decides = a;
    return true;
  }
  if (a->op != ExprOp::kAnd || b->op != ExprOp::kAnd || a->operands[0] != b->operands[0]) return false;
  *decides = Expr::Of(a->operands[1]);
  *shared = Expr::Of(a->operands[0]);
  return Not(*decides).Is(Expr::Of(b->operands[1]));
}

bool IsProduct(const Expr& expr) { return expr->op == ExprOp::kMultiply; }

// A product with a sign: x p or -(x p).
struct SignedProduct {
  Expr product;
  bool is_negative = false;

  static SignedProduct Of(const Expr& expr) {
    if (expr->op != ExprOp::kNegate) return {expr};
    return {Expr::Of(expr->operands[0]), true};
  }
  Expr Factor(int i) const { return Expr::Of(product->operands[i]); }
};

// x a + x b as x (a + b); undefined: they share no factor.
Expr SumOfSharedFactor(const Expr& left, const Expr& right) {
  const SignedProduct a = SignedProduct::Of(left), b = SignedProduct::Of(right);
  if (!IsProduct(a.product) || !IsProduct(b.product)) return {};
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 2; ++k) {
      if (!a.Factor(i).Is(b.Factor(k))) continue;
      const Expr p = a.Factor(1 - i), q = b.Factor(1 - k);
      if (a.is_negative == b.is_negative) return a.is_negative ? -(a.Factor(i) * (p + q)) : a.Factor(i) * (p + q);
      return a.Factor(i) * (a.is_negative ? q - p : p - q);
    }
  }
  return {};
}

Expr Plus(const Expr& a, const Expr& b, bool rounds_once) {
  if (const Expr shared = SumOfSharedFactor(a, b); shared.defined()) return shared;
  if (!rounds_once) return a + b;
  for (const auto& [one, other] : {std::pair(&b, &a), std::pair(&a, &b)}) {
    const SignedProduct term = SignedProduct::Of(*one);
    if (!IsProduct(term.product)) continue;
    return MulAdd(term.is_negative ? -term.Factor(0) : term.Factor(0), term.Factor(1), *other);
  }
  return a + b;
}

}  // namespace

Flow SumOf(const Flow& a, const Flow& b, bool rounds_once) {
  const auto plus = [&](const Expr& x, const Expr& y) { return Plus(x, y, rounds_once); };
  if (!a.value.defined()) return b;
  const bool varies = a.condition_varies || b.condition_varies;
  if (!a.condition.defined() || !b.condition.defined()) return {.value = plus(a.Selected(), b.Selected())};
  if (a.condition.Is(b.condition)) {
    return {plus(a.value, b.value), a.condition, varies, a.is_zero_elsewhere && b.is_zero_elsewhere};
  }
  Expr decides, shared;
  if (AreOpposite(a.condition, b.condition, &decides, &shared)) {
    return {Where(decides, a.value, b.value), shared, shared.defined() && varies, !shared.defined()};
  }
  return {plus(a.Selected(), b.Selected()), Or(a.condition, b.condition), varies};
}

Flow SumOverRow(const Flow& flow) {
  if (!flow.value.defined()) return {};
  if (!flow.condition.defined()) return {.value = RowSum(flow.value)};
  if (!flow.condition_varies) return {RowSum(flow.value), flow.condition, false, flow.is_zero_elsewhere};
  // A factor that comes later may be NaN in a row of which nothing counts.
  return {RowSum(flow.Selected()), RowMax(Cast(DType::kInt32, flow.condition)) > 0};
}

}  // namespace stepnet
