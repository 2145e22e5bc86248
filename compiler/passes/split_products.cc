#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/node_order.h"
#include "stepnet/compiler/passes/expand.h"
#include "stepnet/compiler/passes/fold_sums.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/side_by_side.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// One of the values that lie side by side in the left factor of a product, or in the product.
struct Block {
  int value = kNoValue;
  std::int64_t columns = 0;
  int number = 0;  // of the blocks, from the left
};

// A matrix, by rows.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// Whether the operand is all of a matrix of so many columns, or those columns of a wider one.
bool IsWhole(const RegionOperand& operand, std::int64_t rows, std::int64_t columns) {
  return operand.offset == 0 && operand.size == rows * columns && operand.strides == RegionIndex{0, 0, columns, 1};
}
bool IsBlock(const RegionOperand& operand, const Matrix& of, std::int64_t first_column) {
  return operand.offset == first_column && operand.strides == RegionIndex{0, 0, of.columns, 1};
}

class ProductSplitter {
 public:
  explicit ProductSplitter(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        products_(*graph),
        written_(WrittenBases(*graph)),
        put_before_(graph->nodes.size()),
        gone_(graph->nodes.size(), false) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (node.kind != StepNode::Kind::kProduct) continue;
      if (products_.Contains(node) && uses_.IsApart(node.outputs[0]) && SplitLeft(static_cast<int>(n))) continue;
      if (products_.Contains(node) && uses_.IsApart(node.outputs[0]) && SplitTerms(static_cast<int>(n))) continue;
      for (size_t output = 0; output < node.outputs.size(); ++output) SplitOutput(static_cast<int>(n), output);
    }
    if (once_.empty()) return false;
    ReplaceNodes(std::move(put_before_), gone_, std::move(once_), &graph_);
    Expand(&graph_);
    FoldSums(&graph_);
    return true;
  }

 private:
  // The values that the operator lays side by side in a matrix, an output of it, or takes out of one, an input. Empty
  // where it does something else with the matrix.
  std::vector<Block> BlocksOf(const StepNode& node, int tensor, const Matrix& matrix) const {
    if (!node.IsOneOperator() || node.by_blobs || !node.call->schema().expansion) return {};
    const bool is_read = tensor < std::ssize(node.inputs);
    const std::vector<TensorInfo> inputs = graph_.InfosOf(node.inputs);
    const ShapeQuery query(*node.call, inputs);
    const Expansion expansion(query);
    std::vector<Block> blocks;
    std::int64_t at = 0;
    for (const RegionPart& part : expansion.parts()) {
      if (std::ranges::count(is_read ? part.inputs : part.outputs, tensor) == 0) continue;
      const Region& copy = part.region;
      if (copy.inputs.size() != 1 || copy.outputs.size() != 1) return {};
      const std::int64_t columns = copy.sizes[kRegionDims - 1];
      const RegionOperand &from = copy.inputs[0], &to = copy.outputs[0].memory;
      const bool copies = copy.sizes == RegionIndex{1, 1, matrix.rows, columns} &&
                          copy.outputs[0].value->op == ExprOp::kInput && IsBlock(is_read ? from : to, matrix, at) &&
                          IsWhole(is_read ? to : from, matrix.rows, columns);
      if (!copies) return {};
      const int value = is_read ? node.outputs[part.outputs[0] - std::ssize(node.inputs)] : node.inputs[part.inputs[0]];
      blocks.push_back({value, columns, static_cast<int>(blocks.size())});
      at += columns;
    }
    return at == matrix.columns && blocks.size() > 1 ? blocks : std::vector<Block>();
  }

  // The cycle that a node of the loop is on, as nodes are before the pass.
  int CycleOf(int node) {
    if (cycles_.empty()) {
      const auto end = static_cast<int>(graph_.nodes.size());
      cycles_ = CyclesOf(graph_, 0, end, FollowersByBytes(graph_, 0, end));
    }
    return cycles_[node];
  }

  // Whether no step of the product's loop gives the value.
  bool IsGivenApart(int value, int product) {
    const StepValue& v = graph_.values[value];
    if (v.producer >= 0) return CycleOf(v.producer) != CycleOf(product);
    const Home& home = graph_.homes[v.home];
    return home.kind == Home::Kind::kOutside && !written_.contains(home.slot.base);
  }

  // Whether no step of the product's loop reads the value, or memory outside where it lies.
  bool IsReadApart(int value, int product) {
    if (value == kNoValue) return true;
    const Home& home = graph_.homes[graph_.values[value].home];
    const bool is_outside = home.kind == Home::Kind::kOutside;
    if (!is_outside && uses_.NumValues(graph_.values[value].home) != 1) return false;
    const auto reads_it = [&](int input) {
      const Home& read = graph_.homes[graph_.values[input].home];
      return input == value || (is_outside && read.kind == Home::Kind::kOutside && read.slot.base == home.slot.base);
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (std::ranges::any_of(graph_.nodes[n].inputs, reads_it) && CycleOf(static_cast<int>(n)) == CycleOf(product))
        return false;
    }
    return !graph_.values[value].added;
  }

  // x w + h u in place of (x, h) (w, u): a product of each block, where the giver stands; the first one has the bias,
  // and the others add to it. Those of values that the loop does not give come first. Returns false where there are
  // none or no others: the product is as well off as it is.
  bool SplitLeft(int product) {
    const StepNode& whole = graph_.nodes[product];
    const ProductFactor& left = whole.products[0]->left;
    const int joined = WeightProducts::LeftOf(whole), giver = graph_.values[joined].producer;
    if (giver < 0 || left.transposed) return false;
    const StepNode& by = graph_.nodes[giver];
    const auto output = std::ranges::find(by.outputs, joined) - by.outputs.begin();
    std::vector<Block> blocks =
        BlocksOf(by, static_cast<int>(std::ssize(by.inputs) + output), {left.rows(), left.columns()});
    if (blocks.empty() || CycleOf(product) == kNoCycle) return false;
    const auto of_loop = std::stable_partition(blocks.begin(), blocks.end(),
                                               [&](const Block& block) { return IsGivenApart(block.value, product); });
    if (of_loop == blocks.begin() || of_loop == blocks.end()) return false;
    const std::vector<int> weights = WeightsOf(whole, *whole.products[0], blocks, /*along_rows=*/true);
    const int sum = whole.outputs[0];
    for (const Block& block : blocks) {
      const bool is_first = &block == &blocks.front(), is_last = &block == &blocks.back();
      std::vector<int> inputs = whole.inputs;
      inputs[left.input] = block.value;
      inputs[whole.products[0]->right->input] = weights[block.number];
      if (!is_first && WeightProducts::HasBias(whole)) inputs.erase(inputs.begin() + whole.products[0]->bias);
      const StepValue of_sum = graph_.values[sum];
      const int term = is_last ? sum : graph_.AddValue({.blob = of_sum.blob, .info = of_sum.info, .home = of_sum.home});
      graph_.values[term].added = !is_first;
      put_before_[giver].push_back(ProductLike(whole, std::move(inputs), term));
    }
    gone_[product] = true;
    ++num_split_[joined];
    DropUnread(giver);
    return true;
  }

  // d w and d u in place of d (w, u), which an operator takes apart: each block is a product of its own, where that
  // operator stands. Leaves it where the loop reads all blocks or none.
  void SplitOutput(int node, size_t output) {
    const StepNode& whole = graph_.nodes[node];
    const int joined = whole.outputs[output];
    if (joined == kNoValue || !uses_.IsApart(joined) || uses_.NumReaders(joined) != 1) return;
    const std::optional<Product>& product = whole.products[output];
    if (!product || !IsByWholeWeight(whole, *product) || CycleOf(node) == kNoCycle) return;
    const int left = whole.inputs[product->left.input];
    const int taker = TakerOf(joined);
    const StepNode& by = graph_.nodes[taker];
    if (!Stays(left, node, taker)) return;
    const auto tensor = static_cast<int>(std::ranges::find(by.inputs, joined) - by.inputs.begin());
    const std::vector<Block> blocks = BlocksOf(by, tensor, {product->left.rows(), product->right->columns()});
    if (std::ssize(blocks) != std::ssize(by.outputs)) return;
    const auto num_apart =
        std::ranges::count_if(blocks, [&](const Block& block) { return IsReadApart(block.value, node); });
    if (num_apart == 0 || num_apart == std::ssize(blocks)) return;
    const std::vector<int> weights = WeightsOf(whole, *product, blocks, /*along_rows=*/false);
    for (const Block& block : blocks) {
      if (block.value == kNoValue) continue;
      const int weight = weights[block.number];
      const OperatorDef def = ProductOperator(graph_.values[left].blob, graph_.values[weight].blob,
                                              product->right->transposed, graph_.values[block.value].blob);
      put_before_[taker].push_back(NodeLike(by, def, {left, weight}, {block.value}));
    }
    graph_.ForgetLast(joined);
    graph_.nodes[node].outputs[output] = kNoValue;
    gone_[node] = graph_.nodes[node].given().empty();
    gone_[taker] = true;
  }

  // x w_1 + b_1 and x w_2 + b_2 in place of x (w_1, w_2) + (b_1, b_2), which no step waits for and an operator takes
  // apart, where the loop adds to each block, so that it needs memory of its own. Elsewhere blocks are read where they
  // are. Returns false where that is not so, and where copies cost less than starts of kernels: on a Zen 5 gru.cell
  // took 0.95 to 1.01 of its time with products of blocks, but 1.15 where one of them came into the loop and the other
  // not.
  bool SplitTerms(int product) {
    if (!graph_.target->takes_all_over_time) return false;
    const StepNode& whole = graph_.nodes[product];
    const Product& factors = *whole.products[0];
    const int joined = whole.outputs[0], left = WeightProducts::LeftOf(whole);
    if (factors.left.transposed || uses_.NumReaders(joined) != 1 || CycleOf(product) != kNoCycle) return false;
    const auto taker = TakerOf(joined);
    const StepNode& by = graph_.nodes[taker];
    if (!Stays(left, product, taker)) return false;
    const auto tensor = static_cast<int>(std::ranges::find(by.inputs, joined) - by.inputs.begin());
    const std::vector<Block> blocks = BlocksOf(by, tensor, {factors.left.rows(), factors.right->columns()});
    const auto is_added_to = [&](const Block& block) {
      return block.value != kNoValue && uses_.IsAddedTo(graph_.values[block.value].home);
    };
    if (blocks.empty() || std::ssize(blocks) != std::ssize(by.outputs) || !std::ranges::all_of(blocks, is_added_to)) {
      return false;
    }
    const std::vector<int> weights = WeightsOf(whole, factors, blocks, /*along_rows=*/false);
    const int bias = WeightProducts::HasBias(whole) ? factors.bias : -1;
    const std::vector<int> biases =
        bias < 0 ? std::vector<int>() : PartsOf(whole, whole.inputs[bias], /*axis=*/0, blocks);
    for (const Block& block : blocks) {
      std::vector<int> inputs = whole.inputs;
      inputs[factors.right->input] = weights[block.number];
      if (bias >= 0) inputs[bias] = biases[block.number];
      put_before_[taker].push_back(ProductLike(whole, std::move(inputs), block.value));
    }
    graph_.ForgetLast(joined);
    gone_[product] = gone_[taker] = true;
    return true;
  }

  // The node that reads the value, the first one of several.
  int TakerOf(int value) const {
    const auto reads = [&](const StepNode& node) { return std::ranges::count(node.inputs, value) > 0; };
    return static_cast<int>(std::ranges::find_if(graph_.nodes, reads) - graph_.nodes.begin());
  }

  // Whether the value is still there when node `end` runs, which it is when node `begin` does.
  bool Stays(int value, int begin, int end) const {
    const int home = graph_.values[value].home;
    const bool is_outside = graph_.homes[home].kind == Home::Kind::kOutside;
    return is_outside ? !uses_.IsTouched(graph_.homes[home], begin + 1, end) : uses_.NumValues(home) == 1;
  }

  // Whether a factor is the rows of a value, the other one is a matrix that all steps share, and there is no bias.
  bool IsByWholeWeight(const StepNode& node, const Product& product) const {
    if (!product.right || product.bias >= 0 || product.left.transposed) return false;
    if (product.left.input == product.right->input || !DependsOnInputsAlone(graph_, node)) return false;
    if (node.outputs.size() > 1 && !CanLeaveOut(graph_, node)) return false;
    const int left = node.inputs[product.left.input], weight = node.inputs[product.right->input];
    const Shape &rows = graph_.values[left].info.shape, &matrix = graph_.values[weight].info.shape;
    return rows.rank() > 0 && rows[-1] == product.left.columns() && matrix == product.right->shape &&
           products_.IsTheSameInAllSteps(weight);
  }

  StepNode ProductLike(const StepNode& whole, std::vector<int> inputs, int output) const {
    OperatorDef def = *whole.def;
    def.clear_input();
    for (const int input : inputs) def.add_input(graph_.values[input].blob);
    def.set_output(0, graph_.values[output].blob);
    return NodeLike(whole, def, std::move(inputs), {output});
  }

  // Gives the rows or columns of the weights for each block, by its number.
  const std::vector<int>& WeightsOf(const StepNode& node, const Product& product, const std::vector<Block>& blocks,
                                    bool along_rows) {
    return PartsOf(node, node.inputs[product.right->input], product.right->transposed == along_rows ? 1 : 0, blocks);
  }

  // Copies the parts along a dimension of what all steps share, for each block, by its number, once for all steps.
  const std::vector<int>& PartsOf(const StepNode& node, int shared, int axis, const std::vector<Block>& blocks) {
    std::vector<std::int64_t> sizes(blocks.size());
    for (const Block& block : blocks) sizes[block.number] = block.columns;
    std::vector<int>& parts = parts_[{{shared, axis}, sizes}];
    if (!parts.empty()) return parts;
    std::vector<std::string> names;
    for (const std::int64_t size : sizes) {
      const StepValue& whole = graph_.values[shared];
      graph_.homes.push_back({.kind = Home::Kind::kOnce});
      names.push_back(StrCat(whole.blob, " ", names.size() + 1));
      parts.push_back(graph_.AddValue({.blob = names.back(),
                                       .outside = true,
                                       .info = {.dtype = whole.info.dtype, .shape = whole.info.shape.With(axis, size)},
                                       .home = static_cast<int>(graph_.homes.size()) - 1}));
    }
    const OperatorDef def = PartOperator(graph_.values[shared].blob, axis, names, sizes);
    once_.push_back(NodeLike(node, def, {shared}, parts));
    return parts;
  }

  // The giver goes where nobody reads or keeps anything of what it gives.
  void DropUnread(int giver) {
    const std::vector<int>& outputs = graph_.nodes[giver].outputs;
    const auto is_unread = [&](int value) {
      return value == kNoValue || (uses_.IsApart(value) && num_split_[value] == uses_.NumReaders(value));
    };
    if (!std::ranges::all_of(outputs, is_unread)) return;
    for (const int value : outputs) {
      if (value != kNoValue) graph_.ForgetLast(value);
    }
    gone_[giver] = true;
  }

  StepGraph& graph_;
  const Uses uses_;
  const WeightProducts products_;
  const std::set<int> written_;  // bases
  std::vector<int> cycles_;      // by node
  // The weight or bias, the axis and the sizes of its parts find it.
  std::map<std::pair<std::pair<int, int>, std::vector<std::int64_t>>, std::vector<int>> parts_;
  std::map<int, int> num_split_;                   // products of a value that have been split
  std::vector<std::vector<StepNode>> put_before_;  // by node
  std::vector<bool> gone_;                         // by node
  std::vector<StepNode> once_;
};

// A product of values that lie side by side, some of which no step waits for, as the input beside the state, becomes a
// sum of products of the values, with parts of the weights that are copied once: what need not wait can leave the loop,
// and nothing is laid side by side in each step. So does a product that is taken apart, as the gradient of such values,
// or what the gates of one product have of the input where the loop adds to them apart.
// Rounds otherwise: the terms of a sum are added up in another order.
bool SplitProducts(StepGraph* graph) { return ProductSplitter(graph).Run(); }

const PassRegistration registration({.name = "split_products", .place = 155, .opt_level = 2, .run = SplitProducts});

}  // namespace
}  // namespace stepnet
