#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/weight_products.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/expansion.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class BiasFolder {
 public:
  explicit BiasFolder(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        written_(WrittenBases(*graph)),
        gone_(graph->nodes.size(), false),
        in_loop_(*graph) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (!node.IsOneOperator() || node.inputs.size() != 2 || node.outputs.size() != 1) continue;
      if (!Fold(node, 0, 1) && !Fold(node, 1, 0)) continue;
      gone_[n] = true;
    }
    if (!std::ranges::count(gone_, true)) return false;
    graph_.Erase(gone_);
    return true;
  }

 private:
  // Where the node adds one input to each row of the other.
  bool Fold(const StepNode& node, int rows, int bias) {
    const int sum = node.outputs[0], value = node.inputs[rows];
    if (sum == kNoValue || !IsGivenWhole(graph_, written_, node.inputs[bias])) return false;
    if (!uses_.IsTermAlone(value, sum) || !AddsToEachRow(node, rows, bias)) return false;
    std::vector<int> products;
    FindProducts(value, &products);
    std::ranges::stable_partition(products, [&](int n) { return !in_loop_.Contains(n); });
    for (const int n : products) {
      std::optional<StepNode> with_bias = WithBias(graph_.nodes[n], node.inputs[bias]);
      if (!with_bias) continue;
      graph_.nodes[n] = std::move(*with_bias);
      const int producer = graph_.values[value].producer;
      graph_.ForgetLast(value);
      std::ranges::replace(graph_.nodes[producer].outputs, value, sum);
      graph_.values[sum].producer = producer;
      return true;
    }
    return false;
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
    const TensorInfo &value = graph_.values[node.inputs[rows]].info, &added = graph_.values[node.inputs[bias]].info;
    const bool is_row = added.shape == Shape{columns} && value.shape.rank() > 0 && value.shape[-1] == columns &&
                        added.dtype == value.dtype && of_bias->offset == 0 && of_rows->offset == 0;
    if (!is_row || of_bias->strides[kRegionDims - 1] != 1 || of_rows->strides[kRegionDims - 1] != 1) return false;
    for (int d = 0; d < kRegionDims - 1; ++d) {
      if (region.sizes[d] > 1 && of_bias->strides[d] != 0) return false;
    }
    return true;
  }

  // Products among the terms of a value.
  void FindProducts(int value, std::vector<int>* products) const {
    const int n = graph_.values[value].producer;
    const StepNode& node = graph_.nodes[n];
    if (node.kind == StepNode::Kind::kProduct) return products->push_back(n);
    if (!node.IsOneOperator() || node.outputs.size() != 1 || !AddsItsInputs(graph_, node)) return;
    for (const int term : node.inputs) {
      if (uses_.IsTermAlone(term, value)) FindProducts(term, products);
    }
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
    StepNode with_bias = NodeLike(node, def, std::move(inputs), node.outputs);
    const std::vector<TensorInfo> infos = graph_.InfosOf(with_bias.inputs);
    const ShapeQuery query(*with_bias.call, infos);
    const Expansion expansion(query);
    if (expansion.products().size() != 1 || expansion.products()[0] != product) return {};
    with_bias.kind = StepNode::Kind::kProduct;
    with_bias.products = expansion.products();
    return with_bias;
  }

  StepGraph& graph_;
  const Uses uses_;
  const std::set<int> written_;  // bases
  std::vector<bool> gone_;       // by node
  NodesInLoop in_loop_;
};

// A bias that all steps share, and which an operator adds to each row of a product or of a sum with products, is added
// by one of the products, where that can have one; rather by one that no step waits for. Rounds otherwise.
bool FoldBiases(StepGraph* graph) { return BiasFolder(graph).Run(); }

const PassRegistration registration({.name = "fold_biases", .place = 120, .opt_level = 2, .run = FoldBiases});

}  // namespace
}  // namespace stepnet
