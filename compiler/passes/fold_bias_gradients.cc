#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/core/expansion.h"
#include "stepnet/nets/side_by_side.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class BiasGradientFolder {
 public:
  explicit BiasGradientFolder(StepGraph* graph)
      : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false), behind_(graph->nodes.size()) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const int rows = RowsSummedBy(graph_.nodes[n]); rows != kNoValue) Fold(static_cast<int>(n), rows);
    }
    if (!std::ranges::count(gone_, true)) return false;
    PutMovesBehind();
    return true;
  }

 private:
  const TensorInfo& InfoOf(int value) const { return graph_.values[value].info; }

  // The value whose rows the node adds up, and gives nothing else; kNoValue: it does not.
  int RowsSummedBy(const StepNode& node) const {
    if (node.kind != StepNode::Kind::kCall || !node.IsOneOperator() || node.by_blobs) return kNoValue;
    if (node.outputs.size() != 1 || node.outputs[0] == kNoValue) return kNoValue;
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
    const ShapeQuery query(*node.call, inputs);
    const Expansion expansion(query);
    if (expansion.sums().size() != 1 || !expansion.sums()[0]) return kNoValue;
    const DimSum& sum = *expansion.sums()[0];
    const int rows = node.inputs[sum.input];
    if (sum.factor != 1 || std::ranges::count(node.inputs, rows) != 1 || InfoOf(rows).shape.rank() == 0)
      return kNoValue;
    std::int64_t columns = 1;  // that are kept, behind those that are summed
    for (size_t d = 0; d < sum.sizes.size(); ++d) {
      if (sum.sizes[d] == 1) continue;
      if (columns > 1) return kNoValue;
      if (!sum.summed[d]) columns = sum.sizes[d];
    }
    return columns == InfoOf(rows).shape[-1] && InfoOf(node.outputs[0]).shape == Shape{columns} ? rows : kNoValue;
  }

  // The move that adds the sum to memory outside, and which alone reads it; -1: there is none.
  int MoveOf(int sum) const {
    if (!uses_.HasOneReader(sum)) return -1;
    const auto reads = [&](const StepNode& node) { return std::ranges::count(node.inputs, sum) > 0; };
    const auto move = std::ranges::find_if(graph_.nodes, reads);
    return AddsTermOutside(graph_, *move) ? static_cast<int>(move - graph_.nodes.begin()) : -1;
  }

  // Lets the gradient of a product give what node `n` sums up, and the move that adds it stand behind.
  void Fold(int n, int rows) {
    const int sum = graph_.nodes[n].outputs[0], move = MoveOf(sum);
    if (move < 0 || graph_.values[rows].dynamic) return;
    for (size_t g = 0; g < graph_.nodes.size(); ++g) {
      const int gradient = static_cast<int>(g);
      if (!MayBeAddedBehind(gradient, n, move)) continue;
      std::optional<StepNode> with_sum = WithSum(graph_.nodes[g], rows, sum);
      if (!with_sum) continue;
      graph_.nodes[g] = std::move(*with_sum);
      behind_[g].push_back(graph_.nodes[move]);
      gone_[n] = gone_[move] = true;
      return;
    }
  }

  // Whether the rows are what they were when the gradient is computed, and nobody sees whether the sum is added there.
  bool MayBeAddedBehind(int gradient, int n, int move) const {
    const Home& outside = graph_.homes[graph_.values[graph_.nodes[move].outputs[0]].home];
    return !uses_.IsTouched(outside, std::min(gradient, n), std::max(move, gradient) + 1);
  }

  // The gradient of a product with these rows, [M, N], if that has no bias so far, as one that gives the bias's, too.
  std::optional<StepNode> WithSum(const StepNode& node, int rows, int sum) const {
    if (node.kind != StepNode::Kind::kProduct || node.packed != kNoValue || InfoOf(sum).dtype != InfoOf(rows).dtype)
      return {};
    const auto reads_rows = [&](const std::optional<Product>& product) {
      return product && node.inputs[product->left.input] == rows;
    };
    if (std::ranges::none_of(node.products, reads_rows)) return {};
    const std::optional<OperatorDef> def = WithBiasGradient(*node.def, graph_.values[sum].blob);
    if (!def) return {};
    std::vector<int> outputs = node.outputs;
    outputs.insert(outputs.begin() + 1, sum);
    StepNode result = NodeLike(node, *def, node.inputs, std::move(outputs));
    const std::vector<TensorInfo> infos = graph_.InfosOf(result.inputs);
    const ShapeQuery query(*result.call, infos);
    result.kind = StepNode::Kind::kProduct;
    result.products = Expansion(query).products();
    const bool is_sum = result.products.size() > 1 && result.products[1] && !result.products[1]->right &&
                        result.inputs[result.products[1]->left.input] == rows;
    return is_sum ? std::optional(std::move(result)) : std::nullopt;
  }

  void PutMovesBehind() {
    std::vector<StepNode> nodes;
    std::vector<bool> gone;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      nodes.push_back(std::move(graph_.nodes[n]));
      gone.push_back(gone_[n]);
      std::ranges::move(behind_[n], std::back_inserter(nodes));
      gone.resize(nodes.size(), false);
    }
    graph_.nodes = std::move(nodes);
    graph_.Erase(gone);
  }

  StepGraph& graph_;
  const Uses uses_;
  std::vector<bool> gone_;                     // nodes
  std::vector<std::vector<StepNode>> behind_;  // by node: the moves that come next
};

// Where a bias was added by an operator of its own, as in x w + h u + b, its gradient is a sum over rows that is
// computed in each step. The gradient of a product of the same rows gives it, as that of a product with a bias does:
// sums over all steps need not be in the loop (form_stages). Rounds otherwise: terms are added in another order.
bool FoldBiasGradients(StepGraph* graph) { return BiasGradientFolder(graph).Run(); }

const PassRegistration registration(
    {.name = "fold_bias_gradients", .place = 53, .opt_level = 2, .run = FoldBiasGradients});

}  // namespace
}  // namespace stepnet
