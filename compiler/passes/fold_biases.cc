#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/summed_products.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/expansion.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr std::int64_t kWorkOfNode = 500;  // whose formula is looked at

class BiasFolder {
 public:
  explicit BiasFolder(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        written_(WrittenBases(*graph)),
        gone_(graph->nodes.size(), false),
        in_loop_(*graph) {}

  bool Run() {
    const auto is_product = [](const StepNode& node) { return node.kind == StepNode::Kind::kProduct; };
    if (std::ranges::none_of(graph_.nodes, is_product)) return false;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      CountWork(kWorkOfNode);
      const StepNode& node = graph_.nodes[n];
      if (!node.IsOneOperator() || node.inputs.size() != 2 || node.outputs.size() != 1) continue;
      if (!Fold(node, 0, 1) && !Fold(node, 1, 0)) continue;
      gone_[n] = true;
    }
    bool is_passed_on = false;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].kind == StepNode::Kind::kProduct) is_passed_on |= PassBiasOn(static_cast<int>(n));
    }
    if (!std::ranges::count(gone_, true)) return is_passed_on;
    graph_.Erase(gone_);
    return true;
  }

 private:
  // Where the node adds one input to each row of the other.
  bool Fold(const StepNode& node, int rows, int bias) {
    const int sum = node.outputs[0], value = node.inputs[rows];
    if (sum == kNoValue || !IsGivenWhole(graph_, written_, node.inputs[bias])) return false;
    if (!uses_.IsTermAlone(value, sum) || !AddsToEachRow(node, rows, bias)) return false;
    const auto take = [&] { return Products().Take(ProductsFor(value, sum)); };
    if (!GiveBias(node.inputs[bias], take)) return false;
    const int producer = graph_.values[value].producer;
    graph_.ForgetLast(value);
    std::ranges::replace(graph_.nodes[producer].outputs, value, sum);
    graph_.values[sum].producer = producer;
    return true;
  }

  // Found by who asks first, before a bias is folded. Where one is, the node of the term gives the sum in its place,
  // which has the same products.
  SummedProducts& Products() {
    if (!products_) products_.emplace(graph_, uses_, &in_loop_);
    return *products_;
  }

  // Those that may add the bias in place of `sum`, which adds it to `value`: among the terms of the value or, where all
  // of these are in the loop, of what `sum` is a term of.
  const SummedProducts::Terms& ProductsFor(int value, int sum) {
    const SummedProducts::Terms &of_value = Products().Of(value), &of_total = Products().OfTotal(sum);
    if (!of_value.outside.empty()) return of_value;
    return of_value.in_loop.empty() || !of_total.outside.empty() ? of_total : of_value;
  }

  // Whether one of the products that `take` gives took the bias. One that cannot will take no other either: all biases
  // of one sum are of one shape and dtype.
  template <typename Take>
  bool GiveBias(int bias, const Take& take) {
    while (const std::optional<int> n = take()) {
      CountWork(kWorkOfNode);
      std::optional<StepNode> with_bias = WithBias(graph_.nodes[*n], bias);
      if (!with_bias) continue;
      graph_.nodes[*n] = std::move(*with_bias);
      return true;
    }
    return false;
  }

  // Whether the bias is as large as a row of the value.
  bool IsRowOf(int bias, int value) const {
    const TensorInfo &row = graph_.values[bias].info, &rows = graph_.values[value].info;
    return rows.shape.rank() > 0 && row.shape == Shape{rows.shape[-1]} && row.dtype == rows.dtype;
  }

  bool AddsToEachRow(const StepNode& node, int rows, int bias) const {
    const std::shared_ptr<const FormulaProgram> made = FormulaOf(graph_, node);
    if (made == nullptr) return false;
    const Region& region = made->formula().region;
    if (region.outputs.size() != 1 || region.inputs.size() != 2 || !region.requirements.empty()) return false;
    const ExprNode& sum = *region.outputs[0].value.node();
    if (sum.op != ExprOp::kAdd) return false;
    const RegionOperand *of_rows = nullptr, *of_bias = nullptr;
    for (const ExprNode* term : sum.Operands()) {
      if (term->op != ExprOp::kInput) return false;
      const int input = made->formula().inputs[term->number];
      if (input == rows) of_rows = &region.inputs[term->number];
      if (input == bias) of_bias = &region.inputs[term->number];
    }
    if (of_rows == nullptr || of_bias == nullptr) return false;
    const std::int64_t columns = region.sizes[kRegionDims - 1];
    const bool is_row = IsRowOf(node.inputs[bias], node.inputs[rows]) &&
                        graph_.values[node.inputs[bias]].info.shape[0] == columns && of_bias->offset == 0 &&
                        of_rows->offset == 0;
    if (!is_row || of_bias->strides[kRegionDims - 1] != 1 || of_rows->strides[kRegionDims - 1] != 1) return false;
    for (int d = 0; d < kRegionDims - 1; ++d) {
      if (region.sizes[d] > 1 && of_bias->strides[d] != 0) return false;
    }
    return true;
  }

  // Where a product of the loop has a bias, and one that no step waits for is added to it, that one takes the bias.
  bool PassBiasOn(int n) {
    const StepNode& node = graph_.nodes[n];
    if (node.products.size() != 1 || !node.products[0] || node.products[0]->bias < 0 || node.outputs[0] == kNoValue)
      return false;
    const int value = node.outputs[0], bias = node.inputs[node.products[0]->bias];
    if (!IsRowOf(bias, value) || !IsGivenWhole(graph_, written_, bias) || !Products().IsTerm(value)) return false;
    if (!in_loop_.Contains(n)) return false;
    std::optional<StepNode> without_bias = WithoutBias(node);
    if (!without_bias) return false;
    const auto take = [&] { return Products().TakeOutside(Products().OfTotal(value)); };
    if (!GiveBias(bias, take)) return false;
    graph_.nodes[n] = std::move(*without_bias);
    return true;
  }

  // The same product, to each row of which the bias is added; nothing where its operator cannot do that.
  std::optional<StepNode> WithBias(const StepNode& node, int bias) const {
    if (node.products.size() != 1 || !node.products[0] || !node.products[0]->right || node.products[0]->bias >= 0) {
      return {};
    }
    const auto num_inputs = static_cast<int>(node.inputs.size());
    if (num_inputs == node.call->schema().max_inputs()) return {};
    Product product = *node.products[0];
    product.bias = num_inputs;
    OperatorDef def = *node.def;
    def.add_input(graph_.values[bias].blob);
    std::vector<int> inputs = node.inputs;
    inputs.push_back(bias);
    return ProductLike(node, def, std::move(inputs), product);
  }

  // The same product without its bias; nothing where its operator needs one.
  std::optional<StepNode> WithoutBias(const StepNode& node) const {
    Product product = *node.products[0];
    const auto last = static_cast<int>(node.inputs.size()) - 1;
    if (product.bias != last || last < node.call->schema().min_inputs()) return {};
    product.bias = -1;
    OperatorDef def = *node.def;
    def.mutable_input()->RemoveLast();
    return ProductLike(node, def, {node.inputs.begin(), node.inputs.end() - 1}, product);
  }

  // An operator of the same type with other inputs; nothing where it does not give the product.
  std::optional<StepNode> ProductLike(const StepNode& node, const OperatorDef& def, std::vector<int> inputs,
                                      const Product& product) const {
    StepNode like = NodeLike(node, def, std::move(inputs), node.outputs);
    const std::vector<TensorInfo> infos = graph_.InfosOf(like.inputs);
    const ShapeQuery query(*like.call, infos);
    const Expansion expansion(query);
    if (expansion.products().size() != 1 || expansion.products()[0] != product) return {};
    like.kind = StepNode::Kind::kProduct;
    like.products = expansion.products();
    return like;
  }

  StepGraph& graph_;
  const Uses uses_;
  const std::set<int> written_;  // bases
  std::vector<bool> gone_;       // by node
  NodesInLoop in_loop_;
  std::optional<SummedProducts> products_;
};

// A bias that all steps share, and which an operator adds to each row of a product or of a sum with products, is added
// by one of the products, where that can have one; rather by one that no step waits for, also where that is added only
// later: as in b + h u + x w. Rounds otherwise.
bool FoldBiases(StepGraph* graph) { return BiasFolder(graph).Run(); }

const PassRegistration registration({.name = "fold_biases", .place = 120, .opt_level = 2, .run = FoldBiases});

}  // namespace
}  // namespace stepnet
