// Reverse accumulation over an expression's nodes.
// Source: Griewank, Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, section 3.2 (incremental reverse mode).
//
// What flows into a node is a value and the condition under which it counts (Flow). Factors go to the value alone;
// conditions are put around it where flows that have different ones meet, and where a gradient arrives.
//
// A node that is the same for all of a row counts as one number: what flows into it from elements is summed over the
// row first.
#include "stepnet/core/formulas/derivative.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_map>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/expressions/node_numbers.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/derivative_flow.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// The input itself where a node is what is loaded from one that is only stored.
const ExprNode& ReadOf(const ExprNode& node) {
  return node.op == ExprOp::kCast && IsStoredFloat(node.operands[0]->dtype) ? *node.operands[0] : node;
}
bool IsReduction(const ExprNode& node) { return node.op == ExprOp::kRowSum || node.op == ExprOp::kRowMax; }

double NumberOf(const Expr& constant) { return DoubleOf({.dtype = constant->dtype, .bits = constant->bits}); }

// Whether expr is a constant that equals `value`, as 0 and -0 do.
bool EqualsNumber(const Expr& expr, double value) { return expr.IsConstant() && NumberOf(expr) == value; }

// x^exponent with the products that Caffe2's Pow has for the powers that cells use (operators/powers.cc).
Expr Power(const Expr& x, const Expr& exponent) {
  if (EqualsNumber(exponent, 2)) return x * x;
  if (EqualsNumber(exponent, 3)) return x * x * x;
  return Pow(x, exponent);
}

// How a number compares with constants above low and below high, where these are no NaN: as `value` does.
struct Comparable {
  Expr value = {};
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();

  bool Knows(double bound) const { return value.defined() && !(bound <= low) && !(bound >= high); }
};

bool IsDifferentiable(ExprOp op) {
  switch (op) {
    case ExprOp::kConstant:
    case ExprOp::kLiteral:
    case ExprOp::kSign:
    case ExprOp::kFloor:
    case ExprOp::kCeil:
    case ExprOp::kRound:
    case ExprOp::kUniform: return false;
    default: return true;
  }
}

// A node of the formula.
struct Node {
  const ExprNode* expr = nullptr;
  Expr value = {};  // as the derivative computes it
  bool is_stored = false;
  bool varies = false;     // along the row
  bool is_active = false;  // a gradient flows through it to an input that is asked for
  Comparable compares = {};
  // What flows into it: once for an element; for one that is the same for all of the row also once for the row, and
  // for elements that are to be added up and then divided by it.
  Flow by_element = {};
  Flow by_row = {};
  Flow to_divide = {};
};

class Derivation {
 public:
  Derivation(std::span<const DerivativeOutput> outputs, std::span<const Expr> inputs, const DerivativeOptions& options)
      : outputs_(outputs), inputs_(inputs), options_(options) {}

  std::vector<InputGradient> Run() {
    CheckDefined();
    CheckOutputs();
    AddNodes();
    for (const DerivativeOutput& output : outputs_) {
      if (!output.gradient.defined()) continue;
      Node& node = nodes_[index_.Find(output.value.node())];
      Flow& into = output.is_row ? node.by_row : node.by_element;
      into = Sum(into, {.value = output.gradient});
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Flow flow = Arrived(nodes_[i]);
      if (!nodes_[i].is_active || !flow.value.defined()) continue;
      if (NumActiveOperands(*nodes_[i].expr) > 1) rules_.shared.insert(flow.value.node());
      PassOn(nodes_[i], flow);
    }
    std::vector<InputGradient> gradients;
    for (const Expr& input : inputs_) gradients.push_back(GradientOf(input));
    return gradients;
  }

 private:
  void CheckDefined() const {
    for (const DerivativeOutput& output : outputs_) {
      if (!output.value.defined()) throw Error(ErrorCode::kInvalidArgument, "an output to differentiate is undefined");
    }
    for (const Expr& input : inputs_) {
      if (input.defined() && ReadOf(*input).op == ExprOp::kInput) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("gradient by ", input.defined() ? ExprSummary(input) : "nothing", ", which is no input"));
    }
  }

  void CheckOutputs() const {
    for (const DerivativeOutput& output : outputs_) {
      for (const Expr& other : {output.gradient, output.stored}) {
        if (!other.defined() || other->dtype == output.value->dtype) continue;
        throw Error(ErrorCode::kTypeMismatch, StrCat(ExprSummary(other), " is ", other->dtype, " and stands for ",
                                                     ExprSummary(output.value), ", which is ", output.value->dtype));
      }
      if (!output.gradient.defined()) continue;
      if (!IsFloatOrDouble(output.value->dtype)) {
        throw Error(ErrorCode::kTypeMismatch, StrCat("gradient of ", ExprSummary(output.value), ", which is ",
                                                     output.value->dtype, ", must be float or double"));
      }
      if (!output.is_row) continue;
      for (const Expr& of_row : {output.value, output.gradient}) {
        if (!Varies(of_row)) continue;
        throw Error(ErrorCode::kInvalidArgument, StrCat(ExprSummary(of_row), " varies along the row"));
      }
    }
  }

  bool Moves(const ExprNode& input, int dimension) const {
    const auto number = static_cast<size_t>(input.number);
    return number >= options_.accesses.size() || options_.accesses[number].moves[dimension];
  }

  // Whether a node is an input that several rows share.
  bool IsRepeated(const ExprNode& node) const {
    bool is_repeated = false;
    for (int d = 0; d < kRegionDims - 1; ++d) is_repeated |= !Moves(ReadOf(node), d);
    return ReadOf(node).op == ExprOp::kInput && is_repeated;
  }

  // Whether a node varies along the row, of which the operands are known.
  template <typename OperandVaries>
  bool NodeVaries(const ExprNode& node, OperandVaries operand_varies) const {
    if (node.op == ExprOp::kInput) return Moves(node, kRegionDims - 1);
    if (node.op == ExprOp::kIndex) return node.number == kRegionDims - 1;
    return !IsReduction(node) && std::ranges::any_of(node.Operands(), operand_varies);
  }

  bool Varies(const Expr& expr) const {
    std::unordered_map<const ExprNode*, bool> varies;
    for (const ExprNode* node : ExprNodes({&expr, 1})) {
      varies[node] = NodeVaries(*node, [&](const ExprNode* operand) { return varies.at(operand); });
    }
    return varies.at(expr.node());
  }

  void AddNodes() {
    std::vector<Expr> roots;
    for (const DerivativeOutput& output : outputs_) {
      if (output.gradient.defined()) roots.push_back(output.value);
    }
    const std::vector<const ExprNode*> nodes = ExprNodes(roots);
    rules_.rounds_once = std::ranges::count(nodes, ExprOp::kMulAdd, &ExprNode::op) > 0;
    for (size_t i = 0; i < nodes.size(); ++i) index_.Add(nodes[i], static_cast<int>(i));
    const std::unordered_map<const ExprNode*, Expr> stored = StoredNodes(nodes);
    nodes_.reserve(nodes.size());
    for (const ExprNode* expr : nodes) {
      Node node{.expr = expr};
      node.varies = NodeVaries(*expr, [&](const ExprNode* operand) { return At(operand).varies; });
      // What is the same for all of a row is computed once for it, though the output repeats it.
      const auto found = stored.find(expr);
      node.is_stored = found != stored.end() && (node.varies || !Varies(found->second));
      node.value = node.is_stored ? found->second : ComputedAgain(*expr);
      if (node.is_stored) node.compares.value = node.value;
      node.is_active = IsActive(*expr);
      nodes_.push_back(std::move(node));
    }
  }

  // What stands for a node. A stored output that negates stands, negated, for what it negates. Where one selects
  // between two, it is the one that is selected; so it stands for that one if nothing reads it but where it is
  // selected.
  std::unordered_map<const ExprNode*, Expr> StoredNodes(std::span<const ExprNode* const> nodes) const {
    std::unordered_map<const ExprNode*, Expr> stored;
    for (const DerivativeOutput& output : outputs_) {
      if (!output.stored.defined()) continue;
      const ExprNode& value = *output.value;
      stored.emplace(&value, output.stored);
      const auto is_computed = [&](int operand) {
        return value.operands[operand]->op != ExprOp::kInput && value.operands[operand]->op != ExprOp::kConstant;
      };
      if (value.op == ExprOp::kNegate && is_computed(0)) stored.emplace(value.operands[0], -output.stored);
      if (value.op != ExprOp::kWhere) continue;
      for (const int branch : {1, 2}) {
        const bool is_under =
            is_computed(branch) && IsReadUnder(nodes, value.operands[branch], value.operands[0], branch);
        if (is_under) stored.emplace(value.operands[branch], output.stored);
      }
    }
    return stored;
  }

  // Whether all that reads a node does so where `condition` selects `branch` (1: where it holds).
  bool IsReadUnder(std::span<const ExprNode* const> nodes, const ExprNode* node, const ExprNode* condition,
                   int branch) const {
    const int found = index_.Find(node);
    if (found < 0) return false;
    std::vector<bool> is_under(nodes.size(), true);
    for (const DerivativeOutput& output : outputs_) {
      if (output.gradient.defined()) is_under[index_.Find(output.value.node())] = false;
    }
    for (size_t reader = nodes.size(); reader-- > static_cast<size_t>(found);) {
      const bool selects = nodes[reader]->op == ExprOp::kWhere && nodes[reader]->operands[0] == condition;
      for (int i = 0; i < nodes[reader]->num_operands; ++i) {
        if (!is_under[reader] && !(selects && i == branch)) is_under[index_.Find(nodes[reader]->operands[i])] = false;
      }
    }
    return is_under[found];
  }

  // The node over what is stored.
  Expr ComputedAgain(const ExprNode& node) const {
    std::vector<Expr> operands;
    bool is_same = true;
    for (const ExprNode* operand : node.Operands()) {
      operands.push_back(At(operand).value);
      is_same &= operands.back().node() == operand;
    }
    if (is_same) return Expr::Of(&node);
    return MakeExpr(node.op, operands, {.dtype = node.dtype, .number = node.number, .text = node.text});
  }

  // Whether the gradient by this is asked for.
  bool IsWanted(const ExprNode& node) const {
    return std::ranges::any_of(inputs_, [&](const Expr& input) { return input.node() == &node; });
  }

  bool IsActive(const ExprNode& node) const {
    const auto is_node = [&](const Expr& expr) { return expr.node() == &node; };
    if (!IsFloatOrDouble(node.dtype) || std::ranges::any_of(options_.constants, is_node)) return false;
    if (ReadOf(node).op == ExprOp::kInput) return IsWanted(node);
    return IsDifferentiable(node.op) &&
           std::ranges::any_of(node.Operands(), [&](const ExprNode* operand) { return At(operand).is_active; });
  }

  std::int64_t NumActiveOperands(const ExprNode& node) const {
    return std::ranges::count_if(node.Operands(), [&](const ExprNode* operand) { return At(operand).is_active; });
  }

  const Node& At(const ExprNode* node) const { return nodes_[index_.Find(node)]; }
  Node& Operand(const Node& node, int i) { return nodes_[index_.Find(node.expr->operands[i])]; }

  // All that flows into a node.
  Flow Arrived(const Node& node) const {
    if (node.varies) return node.by_element;
    Flow flow = node.by_row;
    for (const Flow& more : {SumOverRow(node.by_element), Divided(SumOverRow(node.to_divide), node.value)}) {
      if (more.value.defined()) flow = Sum(flow, more);
    }
    return flow;
  }
  static Flow Divided(const Flow& flow, const Expr& by) {
    return flow.value.defined() ? flow.With(-flow.value / by) : flow;
  }

  InputGradient GradientOf(const Expr& input) const {
    InputGradient gradient;
    const int found = index_.Find(input.node());
    if (found < 0) return gradient;
    const Node& node = nodes_[found];
    const Flow flow = node.is_active ? Arrived(node) : Flow();
    gradient.reach = flow.value.defined() ? InputGradient::Reach::kFlows : InputGradient::Reach::kStopped;
    if (flow.value.defined()) gradient.value = flow.Selected();
    const bool is_repeated = IsRepeated(*input);
    if (!node.varies) {
      gradient.kind = RegionOutputKind::kRows;
      gradient.adds_rows = is_repeated;
    } else if (is_repeated) {
      gradient.kind = RegionOutputKind::kSums;
    }
    return gradient;
  }

  Flow Sum(const Flow& a, const Flow& b) const { return SumOf(a, b, rules_); }

  // Lets a gradient flow from a node into its operand i.
  void Give(const Node& node, int i, const Flow& flow) {
    Node& operand = Operand(node, i);
    if (!operand.is_active) return;
    Flow& into = node.varies || IsReduction(*node.expr) ? operand.by_element : operand.by_row;
    into = Sum(into, flow);
  }

  void PassOn(const Node& node, const Flow& flow) {
    const ExprNode& expr = *node.expr;
    if (ReadOf(expr).op == ExprOp::kInput) return;
    switch (expr.op) {
      case ExprOp::kAdd: Give(node, 0, flow); return Give(node, 1, flow);
      case ExprOp::kSubtract: Give(node, 0, flow); return Give(node, 1, flow.With(-flow.value));
      case ExprOp::kMulAdd: Give(node, 2, flow); return PassThroughProduct(node, flow);
      case ExprOp::kMultiply: return PassThroughProduct(node, flow);
      case ExprOp::kDivide: return PassThroughQuotient(node, flow);
      case ExprOp::kMod: return PassThroughMod(node, flow);
      case ExprOp::kPow: return PassThroughPow(node, flow);
      case ExprOp::kMin:
      case ExprOp::kMax: return PassThroughExtremum(node, flow);
      case ExprOp::kAbs: return PassThroughAbs(node, flow);
      case ExprOp::kWhere: return PassThroughWhere(node, flow);
      case ExprOp::kRowSum: return Give(node, 0, flow);
      case ExprOp::kRowMax: return PassThroughRowMax(node, flow);
      default: return Give(node, 0, flow.With(ThroughFunction(node, flow.value)));
    }
  }

  // a * a passes 2 * dy * a once (SqrGradient: twice the gradient, times the input), not dy * a twice.
  void PassThroughProduct(const Node& node, const Flow& flow) {
    const Expr& a = Operand(node, 0).value;
    const Expr& b = Operand(node, 1).value;
    if (a.Is(b)) return Give(node, 0, flow.With(flow.value * 2 * a));
    Give(node, 0, flow.With(flow.value * b));
    Give(node, 1, flow.With(flow.value * a));
  }

  // y = a / b: da = dy / b, db = -(dy * y) / b. Where b is the same for all of a row, the row is summed before it is
  // divided; where it is repeated over rows, db is a sum anyway and shares the quotient of da. 1 / b and 1 / sqrt(x) by
  // their values alone (ReciprocalGradient, RsqrtGradient).
  void PassThroughQuotient(const Node& node, const Flow& flow) {
    const Expr& y = node.value;
    Node& b = Operand(node, 1);
    Give(node, 0, flow.With(flow.value / b.value));
    if (!b.is_active) return;
    if (EqualsNumber(Operand(node, 0).value, 1)) {
      if (b.expr->op != ExprOp::kSqrt) {
        return Give(node, 1, flow.With(-flow.value * (y * y)));
      }
      return Give(b, 0, flow.With(flow.value * (y * y * y) * -0.5));
    }
    if (node.varies && !b.varies) {
      b.to_divide = Sum(b.to_divide, flow.With(flow.value * y));
    } else if (Operand(node, 0).is_active && IsRepeated(*b.expr)) {
      Give(node, 1, flow.With(-(flow.value / b.value * y)));
    } else {
      Give(node, 1, flow.With(-(flow.value * y) / b.value));
    }
  }

  // y = a - trunc(a / b) * b: da = dy, db = -dy * trunc(a / b). The quotient (a - y) / b is whole but for its rounding.
  void PassThroughMod(const Node& node, const Flow& flow) {
    const Expr& a = Operand(node, 0).value;
    const Expr& b = Operand(node, 1).value;
    Give(node, 0, flow);
    Give(node, 1, flow.With(-flow.value * Round((a - node.value) / b)));
  }

  // y = a^b: da = dy * b * a^(b - 1), and 0 where b is 0 (PowGradient); db = dy * y * log(a), and 0 where a is 0 and b
  // is not negative, its limit from above.
  void PassThroughPow(const Node& node, const Flow& flow) {
    const Node &a = Operand(node, 0), &b = Operand(node, 1);
    const Flow selected = b.value.IsConstant() ? flow : flow.Under(NotEqual(b.value, 0), b.varies);
    Give(node, 0, selected.With(flow.value * (b.value * Power(a.value, b.value - 1))));
    if (!b.is_active) return;
    const Expr is_limit = And(Equal(a.value, 0), b.value >= 0);
    const Flow has_log =
        a.value.IsConstant() && !EqualsNumber(a.value, 0) ? flow : flow.Under(Not(is_limit), a.varies || b.varies);
    Give(node, 1, has_log.With(flow.value * (node.value * Log(a.value))));
  }

  void PassThroughExtremum(const Node& node, const Flow& flow) {
    const bool is_max = node.expr->op == ExprOp::kMax;
    for (int i = 0; i < 2; ++i) {
      Node& x = Operand(node, i);
      const Node& other = Operand(node, 1 - i);
      if (other.value.IsConstant() && IsNeverBeyond(node, *x.expr, NumberOf(other.value))) return;
      if (other.value.IsConstant()) return Give(node, i, flow.Under(IsBeyond(node, x, other.value), x.varies));
    }
    // Whether an operand equals the result, without a result: both conditions fail where one of the two is NaN.
    const Node &a = Operand(node, 0), &b = Operand(node, 1);
    const bool varies = a.varies || b.varies;
    Give(node, 0, flow.Under(is_max ? b.value <= a.value : a.value <= b.value, varies));
    Give(node, 1, flow.Under(is_max ? a.value <= b.value : b.value <= a.value, varies));
  }

  // Whether x, an extremum of the other kind, stays on the side of the bound where node is the bound.
  bool IsNeverBeyond(const Node& node, const ExprNode& x, double bound) const {
    const bool is_max = node.expr->op == ExprOp::kMax;
    if (x.op != (is_max ? ExprOp::kMin : ExprOp::kMax)) return false;
    return std::ranges::any_of(x.Operands(), [&](const ExprNode* operand) {
      const Expr& value = At(operand).value;
      return value.IsConstant() && (is_max ? NumberOf(value) <= bound : NumberOf(value) >= bound);
    });
  }

  // Whether x is beyond the constant, so that node, Max or Min of both, is x. That is so where the result is beyond it:
  // the result of node, or of what holds node in turn within a bound on the other side (ClipGradient reads y alone).
  static Expr IsBeyond(const Node& node, Node& x, const Expr& constant) {
    const bool is_max = node.expr->op == ExprOp::kMax;
    const double bound = NumberOf(constant);
    const Comparable& known = node.compares;
    if (known.value.defined() && !x.compares.value.defined()) {
      x.compares = known;
      double& limit = is_max ? x.compares.low : x.compares.high;
      limit = is_max ? std::fmax(limit, bound) : std::fmin(limit, bound);
    }
    const Expr& beyond = known.Knows(bound) ? known.value : x.value;
    return is_max ? beyond > constant : beyond < constant;
  }

  // AbsGradient: of NaN, -dy.
  void PassThroughAbs(const Node& node, const Flow& flow) {
    const Node& x = Operand(node, 0);
    const Flow signed_flow = flow.With(Where(x.value > 0, flow.value, -flow.value));
    Give(node, 0, signed_flow.Under(NotEqual(x.value, 0), x.varies));
  }

  void PassThroughWhere(const Node& node, const Flow& flow) {
    const Node& condition = Operand(node, 0);
    Give(node, 1, flow.Under(condition.value, condition.varies));
    Give(node, 2, flow.Under(Not(condition.value), condition.varies));
  }

  void PassThroughRowMax(const Node& node, const Flow& flow) {
    Node& x = Operand(node, 0);
    if (!x.is_active) return;
    if (x.varies) return Give(node, 0, flow.Under(Equal(x.value, node.value), /*varies=*/true));
    x.by_row = Sum(x.by_row, flow);
  }

  // dy times the derivative of a function of one number. Sources: for erf and erfc, NIST Digital Library of
  // Mathematical Functions, 7.2.1; others are elementary (ibid., 4.4, 4.10, 4.20, 4.34). Products are in the order that
  // Caffe2's gradient operators have (operators/tanh.cc, sigmoid.cc, exponential.cc, powers.cc, trigonometry.cc).
  Expr ThroughFunction(const Node& node, const Expr& dy) {
    const Expr& x = Operand(node, 0).value;
    const Expr& y = node.value;
    switch (node.expr->op) {
      case ExprOp::kNegate: return -dy;
      case ExprOp::kSqrt: return dy * 0.5 / y;
      case ExprOp::kExp: return dy * y;
      // e^x loses no digits below 0; y + 1 reads no x.
      case ExprOp::kExpm1: return dy * (node.is_stored ? y + 1 : Exp(x));
      case ExprOp::kLog: return dy / x;
      case ExprOp::kLog1p: return dy / (1 + x);
      case ExprOp::kTanh: return dy * (rules_.rounds_once ? MulAdd(-y, y, 1) : 1 - y * y);
      case ExprOp::kSigmoid: return rules_.rounds_once ? dy * MulAdd(-y, y, y) : dy * y * (1 - y);
      case ExprOp::kErf: return dy * (2 * std::numbers::inv_sqrtpi * Exp(-(x * x)));
      case ExprOp::kErfc: return dy * (-2 * std::numbers::inv_sqrtpi * Exp(-(x * x)));
      case ExprOp::kSin: return dy * Cos(x);
      case ExprOp::kCos: return -dy * Sin(x);
      case ExprOp::kCast: return Cast(Operand(node, 0).expr->dtype, dy);
      default:
        throw Error(ErrorCode::kInternal,
                    StrCat("nothing says what the derivative of ", ExprOpName(node.expr->op), " is"));
    }
  }

  std::span<const DerivativeOutput> outputs_;
  std::span<const Expr> inputs_;
  const DerivativeOptions& options_;
  FlowRules rules_;
  std::vector<Node> nodes_;
  NodeNumbers index_;  // of nodes
};

}  // namespace

std::vector<InputGradient> Differentiate(std::span<const DerivativeOutput> outputs, std::span<const Expr> inputs,
                                         const DerivativeOptions& options) {
  return Derivation(outputs, inputs, options).Run();
}

}  // namespace stepnet
