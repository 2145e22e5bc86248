// Flow: what arrives at a node of an expression when derivatives are made in reverse.
#pragma once

#include <unordered_set>
#include <utility>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

struct Flow {
  Expr value = {};                // undefined: nothing flows
  Expr condition = {};            // where it does not hold, 0 flows; undefined: it always holds
  bool condition_varies = false;  // along the row
  bool is_zero_elsewhere = true;  // value is 0 where the condition does not hold

  // The same conditions around a value that has become another.
  Flow With(Expr other) const {
    return {std::move(other), condition, condition_varies, /*is_zero_elsewhere=*/!condition.defined()};
  }
  Flow Under(const Expr& also, bool varies) const {
    return {value, condition.defined() ? And(condition, also) : also, condition_varies || varies,
            /*is_zero_elsewhere=*/false};
  }
  Expr Selected() const { return is_zero_elsewhere ? value : Where(condition, value, 0); }
};

struct FlowRules {
  bool rounds_once = false;                         // the sum of a product and something is one MulAdd
  std::unordered_set<const ExprNode*> shared = {};  // values that flow into several nodes
};

// The sum of what flows into one node; x a + x b is x (a + b).
Flow SumOf(const Flow& a, const Flow& b, const FlowRules& rules);
// What flows into a node that is the same for all of a row, whose elements get `flow`.
Flow SumOverRow(const Flow& flow);

}  // namespace stepnet
