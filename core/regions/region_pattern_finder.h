// PatternFinder: what those who look for patterns ask of the values of a region.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>

#include "stepnet/core/floating.h"
#include "stepnet/core/regions/region_values.h"

namespace stepnet {

// The step that makes `op` of a value and another operand; kNone where none does.
inline ChainStep StepOf(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd: return ChainStep::kAdd;
    case ExprOp::kSubtract: return ChainStep::kSubtract;
    case ExprOp::kMultiply: return ChainStep::kMultiply;
    case ExprOp::kDivide: return ChainStep::kDivide;
    default: return ChainStep::kNone;
  }
}

class PatternFinder {
 protected:
  explicit PatternFinder(std::span<RegionValue> values) : values_(values) {}

  bool IsElement(int value) const { return values_[value].level == RegionLevel::kElement; }

  // Whether a pattern may end with the value.
  static bool MayEnd(const RegionValue& value) {
    return value.level == RegionLevel::kElement && IsFloatOrDouble(value.expr->dtype) && !value.is_absorbed &&
           !HasKernel(value);
  }
  static bool HasKernel(const RegionValue& value) { return value.kernel != nullptr || value.several_kernel != nullptr; }

  // Operand k, where a pattern of `value` may absorb it.
  RegionValue* LinkOf(const RegionValue& value, int k) const {
    RegionValue& operand = values_[value.operands[k]];
    const bool can = operand.level == RegionLevel::kElement && operand.uses == 1 && !HasKernel(operand) &&
                     !operand.is_absorbed && operand.expr->op != ExprOp::kInput;
    return can ? &operand : nullptr;
  }
  RegionValue* LinkOf(const RegionValue& value, int k, std::initializer_list<ExprOp> ops) const {
    RegionValue* link = LinkOf(value, k);
    return link != nullptr && std::ranges::find(ops, link->expr->op) != ops.end() ? link : nullptr;
  }

  static void Take(RegionValue* value, const RegionPattern& pattern, RegionKernel kernel,
                   std::initializer_list<int> operands, std::initializer_list<RegionValue*> absorbed) {
    value->pattern = pattern;
    value->kernel = kernel;
    value->num_operands = static_cast<int>(operands.size());
    std::ranges::copy(operands, value->operands);
    for (RegionValue* link : absorbed) link->is_absorbed = true;
  }

  const std::span<RegionValue> values_;
};

}  // namespace stepnet
