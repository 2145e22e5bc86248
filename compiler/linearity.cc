#include "stepnet/compiler/linearity.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "stepnet/compiler/uses.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/regions/region_composition.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

// What a sum of two terms is.
Linearity OfSum(Linearity a, Linearity b) { return a == b ? a : Linearity::kOther; }

// What is linear in each of the two.
Linearity OfProduct(Linearity a, Linearity b) {
  if (a == Linearity::kSame) return b;
  return b == Linearity::kSame ? a : Linearity::kOther;
}

// What any other function of the two is.
Linearity OfFunction(Linearity a, Linearity b) {
  return a == Linearity::kSame && b == Linearity::kSame ? Linearity::kSame : Linearity::kOther;
}

bool IsZero(const ExprNode& expr) { return expr.op == ExprOp::kConstant && expr.bits == 0; }

// What expressions of a region are whose inputs are that.
class ExprLinearity {
 public:
  explicit ExprLinearity(std::span<const Linearity> inputs) : inputs_(inputs) {}

  Linearity Of(const Expr& value) {
    for (const ExprNode* node : ExprNodes({&value, 1})) {
      if (!known_.contains(node)) known_.emplace(node, OfNode(*node));
    }
    return known_.at(value.node());
  }

 private:
  Linearity OfOperand(const ExprNode& node, int operand) const { return known_.at(node.operands[operand]); }

  // 0 is a linear function, too.
  Linearity OfTerms(const ExprNode& node, int first, int second) const {
    if (IsZero(*node.operands[first])) return OfOperand(node, second);
    if (IsZero(*node.operands[second])) return OfOperand(node, first);
    return OfSum(OfOperand(node, first), OfOperand(node, second));
  }

  Linearity OfNode(const ExprNode& node) const {
    switch (node.op) {
      case ExprOp::kInput: return inputs_[static_cast<size_t>(node.number)];
      case ExprOp::kNegate:
      case ExprOp::kRowSum: return OfOperand(node, 0);
      case ExprOp::kCast: return OfCast(node);
      case ExprOp::kAdd:
      case ExprOp::kSubtract: return OfTerms(node, 0, 1);
      case ExprOp::kMultiply: return OfProduct(OfOperand(node, 0), OfOperand(node, 1));
      case ExprOp::kDivide: return OfFactor(node, OfOperand(node, 1), OfOperand(node, 0));
      case ExprOp::kWhere: return OfFactor(node, OfOperand(node, 0), OfTerms(node, 1, 2));
      case ExprOp::kMulAdd: return OfMulAdd(node);
      default: return OfAny(node);
    }
  }

  // What is linear in one operand where the other one, a divisor or a condition, is the same in all steps. Whole
  // numbers are rounded when they are divided.
  static Linearity OfFactor(const ExprNode& node, Linearity other, Linearity linear) {
    return IsFloatOrDouble(node.dtype) && other == Linearity::kSame ? linear : OfFunction(other, linear);
  }

  Linearity OfCast(const ExprNode& node) const {
    const bool rounds = IsFloatOrDouble(node.dtype) && IsFloatOrDouble(node.operands[0]->dtype);
    return rounds ? OfOperand(node, 0) : OfAny(node);
  }

  Linearity OfMulAdd(const ExprNode& node) const {
    const Linearity product = OfProduct(OfOperand(node, 0), OfOperand(node, 1));
    return IsZero(*node.operands[2]) ? product : OfSum(product, OfOperand(node, 2));
  }

  Linearity OfAny(const ExprNode& node) const {
    const bool is_same = std::ranges::all_of(
        node.Operands(), [&](const ExprNode* operand) { return known_.at(operand) == Linearity::kSame; });
    return is_same ? Linearity::kSame : Linearity::kOther;
  }

  const std::span<const Linearity> inputs_;
  std::unordered_map<const ExprNode*, Linearity> known_;
};

class NodeLinearity {
 public:
  NodeLinearity(const StepGraph& graph, const StepNode& node, std::span<const Linearity> inputs)
      : graph_(graph), node_(node), inputs_(inputs), result_(node.outputs.size(), Linearity::kOther) {}

  std::vector<Linearity> Run() {
    if (node_.kind == StepNode::Kind::kMove) {
      result_[0] = inputs_[0];
    } else if (node_.IsOneOperator() && !node_.by_blobs && !HasSideEffects(*node_.call)) {
      if (node_.kind == StepNode::Kind::kProduct) AskProducts();
      if (node_.kind == StepNode::Kind::kRegion && DependsOnInputsAlone(graph_, node_)) AskRegions();
      if (node_.kind == StepNode::Kind::kCall) AskSums();
    }
    return std::move(result_);
  }

 private:
  void AskProducts() {
    for (size_t o = 0; o < node_.products.size(); ++o) {
      if (!node_.products[o]) continue;
      const Product& product = *node_.products[o];
      Linearity of = inputs_[product.left.input];
      if (product.right) of = OfProduct(of, inputs_[product.right->input]);
      result_[o] = product.bias < 0 ? of : OfSum(of, inputs_[product.bias]);
    }
  }

  void AskSums() {
    const std::vector<TensorInfo> infos = graph_.InfosOf(node_.inputs);
    const ShapeQuery query(*node_.call, infos);
    const Expansion expansion(query);
    for (size_t o = 0; o < expansion.sums().size(); ++o) {
      if (expansion.sums()[o]) result_[o] = inputs_[expansion.sums()[o]->input];
    }
  }

  // Parts read inputs of the operator and what parts before them give; an output may be given by several.
  void AskRegions() {
    const std::vector<TensorInfo> infos = graph_.InfosOf(node_.inputs);
    const auto parts = FindParts(ShapeQuery(*node_.call, infos));
    if (parts->checks_values) return;
    const size_t num_inputs = inputs_.size();
    std::vector<std::optional<Linearity>> of(num_inputs + result_.size());  // tensors
    std::ranges::copy(inputs_, of.begin());
    for (const RegionPart& part : parts->parts) {
      std::vector<Linearity> read;
      for (const int tensor : part.inputs) {
        const bool is_known = tensor >= 0 && of[static_cast<size_t>(tensor)].has_value();
        read.push_back(is_known ? *of[static_cast<size_t>(tensor)] : Linearity::kOther);
      }
      ExprLinearity exprs(read);
      for (size_t k = 0; k < part.outputs.size(); ++k) {
        if (IsZero(*part.region.outputs[k].value)) continue;  // what pads a linear piece, or anything else
        const Linearity found = exprs.Of(part.region.outputs[k].value);
        std::optional<Linearity>& known = of[static_cast<size_t>(part.outputs[k])];
        known = known ? OfSum(*known, found) : found;
      }
    }
    for (size_t o = 0; o < result_.size(); ++o) result_[o] = of[num_inputs + o].value_or(Linearity::kOther);
  }

  const StepGraph& graph_;
  const StepNode& node_;
  const std::span<const Linearity> inputs_;
  std::vector<Linearity> result_;
};

}  // namespace

std::vector<Linearity> LinearityOf(const StepGraph& graph, const StepNode& node, std::span<const Linearity> inputs) {
  return NodeLinearity(graph, node, inputs).Run();
}

}  // namespace stepnet
