#include "stepnet/core/formulas/derivative_flow.h"

#include <algorithm>
#include <vector>

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

// `expr` without the sign; turns *is_negative for it.
Expr WithoutSign(const Expr& expr, bool* is_negative) {
  if (expr->op != ExprOp::kNegate) return expr;
  *is_negative = !*is_negative;
  return Expr::Of(expr->operands[0]);
}

// A flow as a product: the gradient that it began as, then a factor for each node that it passed.
struct FlowProduct {
  std::vector<Expr> factors;
  bool is_negative = false;

  // Does not take `shared` values apart: they are computed anyway.
  FlowProduct(Expr expr, const std::unordered_set<const ExprNode*>& shared) {
    for (;;) {
      expr = WithoutSign(expr, &is_negative);
      if (expr->op != ExprOp::kMultiply || shared.contains(expr.node())) break;
      AddFactor(WithoutSign(Expr::Of(expr->operands[1]), &is_negative), shared);
      expr = Expr::Of(expr->operands[0]);
    }
    factors.push_back(expr);
    std::ranges::reverse(factors);
  }

  // A constant that a factor begins with is one of its own, so that it meets others.
  void AddFactor(const Expr& factor, const std::unordered_set<const ExprNode*>& shared) {
    const bool is_scaled = factor->op == ExprOp::kMultiply && !shared.contains(factor.node()) &&
                           Expr::Of(factor->operands[0]).IsConstant();
    factors.push_back(is_scaled ? Expr::Of(factor->operands[1]) : factor);
    if (is_scaled) factors.push_back(Expr::Of(factor->operands[0]));
  }

  // Removes the factors that both have, and returns them.
  static std::vector<Expr> TakeShared(FlowProduct* a, FlowProduct* b) {
    std::vector<Expr> taken;
    std::erase_if(a->factors, [&](const Expr& factor) {
      const auto same = std::ranges::find_if(b->factors, [&](const Expr& other) { return other.Is(factor); });
      if (same == b->factors.end()) return false;
      taken.push_back(factor);
      b->factors.erase(same);
      return true;
    });
    return taken;
  }

  // The product, its constants as one behind the others; undefined where there are no factors.
  static Expr Of(const std::vector<Expr>& factors) {
    Expr product, constant;
    for (const Expr& factor : factors) {
      Expr& into = factor.IsConstant() ? constant : product;
      into = into.defined() ? into * factor : factor;
    }
    if (!product.defined()) return constant;
    return constant.defined() ? product * constant : product;
  }
};

Expr Plus(const Expr& a, const Expr& b, const FlowRules& rules);

// x p + x q as x (p + q); undefined: that is no better.
Expr SumOfSharedFactors(const Expr& a, const Expr& b, const FlowRules& rules) {
  FlowProduct left(a, rules.shared), right(b, rules.shared);
  const Expr common = FlowProduct::Of(FlowProduct::TakeShared(&left, &right));
  const int num_alone = left.factors.empty() + right.factors.empty();
  // x + x q is one MulAdd.
  if (!common.defined() || num_alone == 2 || (num_alone == 1 && rules.rounds_once)) return {};
  if (left.is_negative && !right.is_negative) std::swap(left, right);
  const Expr one = Expr::Constant(a.dtype(), 1);
  const Expr p = left.factors.empty() ? one : FlowProduct::Of(left.factors);
  const Expr q = right.factors.empty() ? one : FlowProduct::Of(right.factors);
  return (left.is_negative ? -common : common) * Plus(p, left.is_negative == right.is_negative ? q : -q, rules);
}

Expr Plus(const Expr& a, const Expr& b, const FlowRules& rules) {
  if (const Expr sum = SumOfSharedFactors(a, b, rules); sum.defined()) return sum;
  if (!rules.rounds_once) return a + b;
  for (const auto& [term, other] : {std::pair(&b, &a), std::pair(&a, &b)}) {
    bool is_negative = false;
    const Expr product = WithoutSign(*term, &is_negative);
    if (product->op != ExprOp::kMultiply) continue;
    const Expr x = Expr::Of(product->operands[0]);
    return MulAdd(is_negative ? -x : x, Expr::Of(product->operands[1]), *other);
  }
  return a + b;
}

}  // namespace

Flow SumOf(const Flow& a, const Flow& b, const FlowRules& rules) {
  const auto plus = [&](const Expr& x, const Expr& y) { return Plus(x, y, rules); };
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
