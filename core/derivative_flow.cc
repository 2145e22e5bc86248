#include "stepnet/core/derivative_flow.h"

#include <optional>

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

// A product without the signs of its factors: a b, or -(a b).
struct SignedProduct {
  Expr factors[2];
  bool is_negative = false;

  Expr Signed() const { return is_negative ? -factors[0] : factors[0]; }
};

// `expr` without the sign; turns *is_negative for it.
Expr WithoutSign(const Expr& expr, bool* is_negative) {
  if (expr->op != ExprOp::kNegate) return expr;
  *is_negative = !*is_negative;
  return Expr::Of(expr->operands[0]);
}

std::optional<SignedProduct> ProductOf(const Expr& expr) {
  SignedProduct product;
  const Expr inner = WithoutSign(expr, &product.is_negative);
  if (inner->op != ExprOp::kMultiply) return {};
  for (int i = 0; i < 2; ++i) {
    product.factors[i] = WithoutSign(Expr::Of(inner->operands[i]), &product.is_negative);
  }
  return product;
}

// x a + x b as x (a + b); undefined: they share no factor.
Expr SumOfSharedFactor(const SignedProduct& a, const SignedProduct& b) {
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 2; ++k) {
      if (!a.factors[i].Is(b.factors[k])) continue;
      const Expr &x = a.factors[i], &p = a.factors[1 - i], &q = b.factors[1 - k];
      if (a.is_negative != b.is_negative) return x * (a.is_negative ? q - p : p - q);
      return a.is_negative ? -x * (p + q) : x * (p + q);
    }
  }
  return {};
}

Expr Plus(const Expr& a, const Expr& b, bool rounds_once) {
  const std::optional<SignedProduct> left = ProductOf(a), right = ProductOf(b);
  if (left && right) {
    if (const Expr shared = SumOfSharedFactor(*left, *right); shared.defined()) return shared;
  }
  if (rounds_once && right) return MulAdd(right->Signed(), right->factors[1], a);
  if (rounds_once && left) return MulAdd(left->Signed(), left->factors[1], b);
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
