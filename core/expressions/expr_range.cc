#include "stepnet/core/expressions/expr_range.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxExponent = 88;  // of float; double has more

// Bounds that would keep 0 out by less than the smallest float are 0, to which one may be rounded.
ExprRange Between(double low, double high) {
  constexpr double kSmallest = std::numeric_limits<float>::min();
  return {.low = low > 0 && low < kSmallest ? 0 : low, .high = high < 0 && high > -kSmallest ? 0 : high};
}

// A bound that is a sum: 0 where rounding could make it that.
double SumOfBounds(double a, double b) {
  constexpr double kRounding = 1e-6;
  const double sum = a + b;
  return std::isfinite(sum) && std::fabs(sum) <= kRounding * (std::fabs(a) + std::fabs(b)) ? 0 : sum;
}
ExprRange Sum(const ExprRange& a, const ExprRange& b) {
  return Between(SumOfBounds(a.low, b.low), SumOfBounds(a.high, b.high));
}
ExprRange Negative(const ExprRange& a) { return {-a.high, -a.low, a.is_without_zero}; }

ExprRange Product(const ExprRange& a, const ExprRange& b) {
  const auto product = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  const auto [low, high] =
      std::minmax({product(a.low, b.low), product(a.low, b.high), product(a.high, b.low), product(a.high, b.high)});
  return Between(low, high);
}

ExprRange Absolute(const ExprRange& a) {
  const auto [smaller, larger] = std::minmax({std::fabs(a.low), std::fabs(a.high)});
  return {a.low <= 0 && a.high >= 0 ? 0 : smaller, larger, a.is_without_zero};
}
ExprRange Square(const ExprRange& a) {
  const ExprRange absolute = Absolute(a);
  return Between(absolute.low * absolute.low, absolute.high * absolute.high);
}

std::optional<ExprRange> Quotient(const ExprRange& a, const ExprRange& b) {
  if (b.HasZero()) return {};
  if (b.low <= 0 && b.high >= 0) return ExprRange();
  return Product(a, Between(1 / b.high, 1 / b.low));
}

// Higher powers of numbers of usual size may be infinite.
constexpr double kMaxPower = 4;

std::optional<ExprRange> Power(const ExprRange& base, const ExprRange& exponent) {
  if (exponent.low != exponent.high || exponent.low < 0 || exponent.low > kMaxPower) return {};
  if (base.low >= 0) return Between(0, kInfinity);
  return exponent.low == std::floor(exponent.low) ? std::optional(ExprRange()) : std::nullopt;
}

ExprRange Union(const ExprRange& a, const ExprRange& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), !a.HasZero() && !b.HasZero()};
}

// A function that never falls takes bounds to bounds.
ExprRange Rising(const ExprRange& a, double (*function)(double)) { return Between(function(a.low), function(a.high)); }

// Whole numbers have none between them: what lies next to 0 is 0.
std::optional<ExprRange> Towards0(DType dtype, const std::optional<ExprRange>& a) {
  if (!a || (dtype != DType::kInt32 && dtype != DType::kInt64)) return a;
  return Rising(*a, std::trunc);
}

class Ranges {
 public:
  Ranges(std::span<const ExprRange> inputs, int* steps_left) : inputs_(inputs), steps_left_(*steps_left) {}

  std::optional<ExprRange> Of(const ExprNode* node) {
    if (const auto found = known_.find(node); found != known_.end()) return found->second;
    if (--steps_left_ < 0) return {};
    std::optional<ExprRange> range = Find(*node);
    known_.emplace(node, range);
    return range;
  }

 private:
  std::optional<ExprRange> Find(const ExprNode& node) {
    if (node.op == ExprOp::kWhere) return OfWhere(node);
    if (const ExprNode* const other = BesideInfinity(node)) return Of(other);
    ExprRange operands[kMaxExprOperands];
    for (size_t i = 0; i < node.Operands().size(); ++i) {
      const std::optional<ExprRange> operand = Of(node.operands[i]);
      if (!operand) return {};
      operands[i] = *operand;
    }
    return OfOperands(node, operands[0], operands[1], operands[2]);
  }

  std::optional<ExprRange> OfOperands(const ExprNode& node, const ExprRange& a, const ExprRange& b,
                                      const ExprRange& c) {
    switch (node.op) {
      case ExprOp::kInput: return OfInput(node.number);
      case ExprOp::kConstant: return OfConstant(node);
      case ExprOp::kIndex: return Between(0, kInfinity);
      case ExprOp::kAdd: return Sum(a, b);
      case ExprOp::kSubtract: return OfDifference(node, a, b);
      case ExprOp::kMultiply: return OfProduct(node, a, b);
      case ExprOp::kMulAdd: return Sum(OfProduct(node, a, b), c);
      case ExprOp::kDivide: return Towards0(node.dtype, Quotient(a, b));
      case ExprOp::kMod: return b.HasZero() ? std::nullopt : std::optional(ExprRange());
      case ExprOp::kMin: return Between(std::min(a.low, b.low), std::min(a.high, b.high));
      case ExprOp::kMax: return Between(std::max(a.low, b.low), std::max(a.high, b.high));
      case ExprOp::kPow: return Power(a, b);
      case ExprOp::kNegate: return Negative(a);
      case ExprOp::kAbs: return Absolute(a);
      case ExprOp::kSqrt: return a.low >= 0 ? std::optional(Rising(a, std::sqrt)) : std::nullopt;
      case ExprOp::kExp: return a.high <= kMaxExponent ? std::optional(Rising(a, std::exp)) : std::nullopt;
      case ExprOp::kExpm1: return a.high <= kMaxExponent ? std::optional(Rising(a, std::expm1)) : std::nullopt;
      case ExprOp::kLog: return OfLog(a);
      case ExprOp::kLog1p: return a.low > -1 ? std::optional(Rising(a, std::log1p)) : std::nullopt;
      case ExprOp::kTanh: return Rising(a, std::tanh);
      case ExprOp::kSigmoid: return Rising(a, [](double x) { return 1 / (1 + std::exp(-x)); });
      case ExprOp::kErf: return Rising(a, std::erf);
      case ExprOp::kErfc: return Between(std::erfc(a.high), std::erfc(a.low));
      case ExprOp::kFloor: return Rising(a, std::floor);
      case ExprOp::kCeil: return Rising(a, std::ceil);
      case ExprOp::kRound: return Rising(a, std::nearbyint);
      case ExprOp::kSign:
      case ExprOp::kSin:
      case ExprOp::kCos: return Between(-1, 1);
      case ExprOp::kUniform: return Between(0, 1);
      case ExprOp::kCast: return node.dtype == DType::kBool ? Between(0, 1) : Towards0(node.dtype, a);
      case ExprOp::kRowSum: return OfRowSum(node, a);
      case ExprOp::kRowMax: return a;
      default: return node.dtype == DType::kBool ? std::optional(Between(0, 1)) : std::nullopt;
    }
  }

  ExprRange OfInput(int number) const { return number < std::ssize(inputs_) ? inputs_[number] : ExprRange(); }
  static double NumberOf(const ExprNode& constant) {
    const ExprScalar scalar{.dtype = constant.dtype, .bits = constant.bits};
    return ForExprType(constant.dtype, [&](auto zero) { return static_cast<double>(scalar.As<decltype(zero)>()); });
  }
  static std::optional<ExprRange> OfConstant(const ExprNode& node) {
    const double value = NumberOf(node);
    return std::isfinite(value) ? std::optional(Between(value, value)) : std::nullopt;
  }
  // What a minimum or maximum with infinity is always, as where a bound is not given; null for other nodes.
  static const ExprNode* BesideInfinity(const ExprNode& node) {
    if (node.op != ExprOp::kMin && node.op != ExprOp::kMax) return nullptr;
    const double infinity = node.op == ExprOp::kMin ? kInfinity : -kInfinity;
    for (const int k : {0, 1}) {
      const ExprNode& bound = *node.operands[k];
      if (bound.op == ExprOp::kConstant && NumberOf(bound) == infinity) return node.operands[1 - k];
    }
    return nullptr;
  }
  static std::optional<ExprRange> OfLog(const ExprRange& a) {
    return a.low >= 0 && !a.HasZero() ? std::optional(Rising(a, std::log)) : std::nullopt;
  }

  static bool IsLessMaximum(const ExprNode& node) {
    return node.op == ExprOp::kSubtract && node.operands[1]->op == ExprOp::kRowMax &&
           node.operands[1]->operands[0] == node.operands[0];
  }
  static ExprRange OfDifference(const ExprNode& node, const ExprRange& a, const ExprRange& b) {
    return IsLessMaximum(node) ? Between(-kInfinity, 0) : Sum(a, Negative(b));
  }
  static ExprRange OfProduct(const ExprNode& node, const ExprRange& a, const ExprRange& b) {
    return node.operands[0] == node.operands[1] ? Square(a) : Product(a, b);
  }
  // At least one term of e^(x - row_max(x)) is 1.
  static ExprRange OfRowSum(const ExprNode& node, const ExprRange& a) {
    const ExprNode& term = *node.operands[0];
    if (term.op == ExprOp::kExp && IsLessMaximum(*term.operands[0])) return Between(1, kInfinity);
    return Between(a.low >= 0 ? a.low : -kInfinity, a.high <= 0 ? a.high : kInfinity);
  }

  std::optional<ExprRange> OfWhere(const ExprNode& node) {
    std::optional<ExprRange> both;
    for (const bool holds : {true, false}) {
      Ranges branch(inputs_, &steps_left_);
      branch.said_ = said_;
      branch.Say(*this, node.operands[0], holds);
      branch.known_ = branch.said_;
      const std::optional<ExprRange> range = branch.Of(node.operands[holds ? 1 : 2]);
      if (!range) return {};
      both = both ? Union(*both, *range) : *range;
    }
    return both;
  }

  // What follows for numbers from the condition, which holds or not.
  void Say(Ranges& before, const ExprNode* condition, bool holds) {
    const ExprNode *const a = condition->operands[0], *const b = condition->operands[1];
    switch (condition->op) {
      case ExprOp::kNot: return Say(before, a, !holds);
      case ExprOp::kAnd:
      case ExprOp::kOr:
        if (holds != (condition->op == ExprOp::kAnd)) return;
        Say(before, a, holds);
        return Say(before, b, holds);
      case ExprOp::kEqual:
      case ExprOp::kNotEqual:
        if (holds == (condition->op == ExprOp::kNotEqual)) SayUnequal(before, a, b), SayUnequal(before, b, a);
        return;
      case ExprOp::kLess: return holds ? SayLess(before, a, b, true) : SayLess(before, b, a, false);
      case ExprOp::kLessEqual: return holds ? SayLess(before, a, b, false) : SayLess(before, b, a, true);
      default: return;
    }
  }

  void SayUnequal(Ranges& before, const ExprNode* a, const ExprNode* b) {
    const std::optional<ExprRange> of_a = before.Of(a), of_b = before.Of(b);
    if (!of_a || !of_b || of_b->low != 0 || of_b->high != 0) return;
    said_[a] = of_a;
    said_[a]->is_without_zero = true;
  }

  void SayLess(Ranges& before, const ExprNode* a, const ExprNode* b, bool is_strict) {
    const std::optional<ExprRange> of_a = before.Of(a), of_b = before.Of(b);
    if (!of_a || !of_b) return;
    said_[a] = {of_a->low, std::min(of_a->high, of_b->high), of_a->is_without_zero || (is_strict && of_b->high <= 0)};
    said_[b] = {std::max(of_b->low, of_a->low), of_b->high, of_b->is_without_zero || (is_strict && of_a->low >= 0)};
  }

  const std::span<const ExprRange> inputs_;
  int& steps_left_;
  std::map<const ExprNode*, std::optional<ExprRange>> known_;
  std::map<const ExprNode*, std::optional<ExprRange>> said_;  // by the conditions around
};

}  // namespace

std::optional<ExprRange> RangeOf(const Expr& expr, std::span<const ExprRange> inputs) {
  int steps_left = 4'000;  // branches in branches are looked at anew, and operands one in the other
  return Ranges(inputs, &steps_left).Of(expr.node());
}

}  // namespace stepnet
