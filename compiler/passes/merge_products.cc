#include "stepnet/compiler/passes/merge_products.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/expand.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/nets/side_by_side.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class ProductMerger {
 public:
  explicit ProductMerger(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        products_(*graph),
        is_trained_(IsTrained(*graph)),
        gone_(graph->nodes.size(), false),
        replaced_by_(graph->nodes.size()) {}

  bool Run() {
    for (const auto& [key, sums] : FindSums()) {
      if (sums.size() > 1) Merge(sums);
    }
    if (!std::ranges::count(gone_, true)) return false;
    ReplaceNodes(std::move(replaced_by_), gone_, std::move(once_), &graph_);
    Expand(&graph_);
    return true;
  }

  std::vector<ProductApart> FindApart() {
    const Products products = FindProducts();
    std::map<int, std::vector<int>> of_value;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (WeightProducts::MultipliesByMatrix(graph_, graph_.nodes[n]))
        of_value[WeightProducts::LeftOf(graph_.nodes[n])].push_back(static_cast<int>(n));
    }
    std::set<int> joined;
    for (const auto& [key, sums] : FindSums()) {
      if (sums.size() < 2 || !HaveSmallWeights(sums) || !HaveOnePlace(sums)) continue;
      TakePlace(sums);
      for (const Sum& sum : sums) joined.insert(sum.begin(), sum.end());
    }
    std::vector<ProductApart> apart;
    for (const auto& [value, nodes] : of_value) {
      std::vector<int> alone;
      std::ranges::copy_if(nodes, std::back_inserter(alone), [&](int n) { return !joined.contains(n); });
      // One says it for two, where none is joined.
      const size_t first = alone.size() == nodes.size() ? 1 : 0;
      for (size_t i = first; i < alone.size(); ++i) {
        const int other = alone[i] == nodes[0] ? nodes[1] : nodes[0];
        apart.push_back({.op_index = graph_.nodes[alone[i]].op_index,
                         .value = graph_.values[value].blob,
                         .why = WhyApart(products, alone[i], other)});
      }
    }
    return apart;
  }

 private:
  // Nodes of products that are added up in one home, in their order.
  using Sum = std::vector<int>;

  struct Products {
    std::map<int, Sum> by_home;
    std::set<int> others;  // homes to which something else writes
  };

  const ProductFactor& RightOf(const StepNode& node) const { return *node.products[0]->right; }
  int HomeOf(const StepNode& node) const { return graph_.values[node.outputs[0]].home; }

  Products FindProducts() const {
    Products found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      for (const int value : node.given()) {
        const int home = graph_.values[value].home;
        if (products_.Contains(node)) {
          found.by_home[home].push_back(static_cast<int>(n));
        } else {
          found.others.insert(home);
        }
      }
    }
    return found;
  }

  std::string KeyOf(const Sum& sum) const {
    std::string key;
    for (const int n : sum) key += products_.KeyOf(graph_.nodes[n]) + "\n";
    return key;
  }

  // The sums, by what their products have in common.
  std::map<std::string, std::vector<Sum>> FindSums() const {
    std::map<std::string, std::vector<Sum>> sums;
    const Products products = FindProducts();
    for (const auto& [home, sum] : products.by_home) {
      if (!products.others.contains(home) && IsReadAtItsEnd(home, sum)) sums[KeyOf(sum)].push_back(sum);
    }
    return sums;
  }

  // Why a product is joined with no other at all; "" where it might be.
  std::string WhyAlone(const Products& products, const StepNode& node) const {
    if (!products_.IsTheSameInAllSteps(WeightProducts::WeightOf(node)))
      return "weights of one change from step to step";
    if (!products_.HasSharedBias(node)) return "the bias of one changes from step to step";
    const int home = HomeOf(node);
    if (!uses_.IsTemporary(node.outputs[0])) return "one is a state or an output, or is kept for the gradient";
    if (products.others.contains(home)) return "one is added to what is no product";
    return IsReadAtItsEnd(home, products.by_home.at(home)) ? "" : "one is read before all terms of its sum are there";
  }

  // Why two products of one value are not joined.
  std::string WhyApart(const Products& products, int n, int other) const {
    const StepNode &a = graph_.nodes[n], &b = graph_.nodes[other];
    for (const StepNode* node : {&a, &b}) {
      if (std::string why = WhyAlone(products, *node); !why.empty()) return why;
    }
    const Sum &sum = products.by_home.at(HomeOf(a)), &other_sum = products.by_home.at(HomeOf(b));
    if (sum == other_sum) return "they are terms of one sum";
    if (sum.size() != other_sum.size()) return "one is in a sum of more products";
    for (size_t k = 0; k < sum.size(); ++k) {
      const StepNode &term = graph_.nodes[sum[k]], &other_term = graph_.nodes[other_sum[k]];
      if (WeightProducts::LeftOf(term) != WeightProducts::LeftOf(other_term))
        return "the other products of their sums are of different values";
      if (WeightProducts::HasBias(term) != WeightProducts::HasBias(other_term))
        return "one has a bias, and one has none";
    }
    if (KeyOf(sum) != KeyOf(other_sum)) return "they are operators of different types or arguments";
    std::int64_t bytes = 0;
    const std::vector<Sum> sums = FindSums().at(KeyOf(sum));
    if (HaveSmallWeights(sums)) return "a copy of weights of theirs lies beside others";
    for (size_t k = 0; k < sum.size(); ++k) bytes = std::max(bytes, BytesOfWeights(sums, k));
    return StrCat(sum.size() > 1 ? "weights in their sums have " : "their weights have ", bytes >> 10,
                  " KB in all, and up to ", graph_.target->max_bytes_to_merge >> 10, " KB are laid side by side");
  }

  // Whether the home goes with the step, and nobody sees in it what is there before all products are added up.
  bool IsReadAtItsEnd(int home, const Sum& sum) const {
    for (const int n : sum) {
      const int value = graph_.nodes[n].outputs[0];
      const bool is_last = n == sum.back();
      if (!uses_.IsTemporary(value) || graph_.values[value].added != (n != sum.front())) return false;
      if ((uses_.NumReaders(value) > 0) != is_last) return false;
    }
    return uses_.NumValues(home) == std::ssize(sum);
  }

  // The k-th products of all sums have so many.
  std::int64_t BytesOfWeights(const std::vector<Sum>& sums, size_t k) const {
    std::int64_t bytes = 0;
    for (const Sum& sum : sums) bytes += products_.WeightBytes(graph_.nodes[sum[k]]);
    return bytes;
  }

  bool HaveSmallWeights(const std::vector<Sum>& sums) const {
    for (size_t k = 0; k < sums[0].size(); ++k) {
      if (BytesOfWeights(sums, k) > graph_.target->max_bytes_to_merge) return false;
    }
    return true;
  }

  std::vector<int> WeightsOf(const std::vector<Sum>& sums, size_t k) const {
    std::vector<int> weights;
    for (const Sum& sum : sums) weights.push_back(WeightProducts::WeightOf(graph_.nodes[sum[k]]));
    return weights;
  }

  // Whether each of these weights lies beside the same others wherever it was merged before. Otherwise it would be
  // copied once more, and all copies would be larger than the weights.
  bool HaveOnePlace(const std::vector<Sum>& sums) const {
    for (size_t k = 0; k < sums[0].size(); ++k) {
      const std::vector<int> weights = WeightsOf(sums, k);
      for (const int weight : weights) {
        const auto found = place_of_.find(weight);
        if (found != place_of_.end() && found->second != weights) return false;
      }
    }
    return true;
  }

  void TakePlace(const std::vector<Sum>& sums) {
    for (size_t k = 0; k < sums[0].size(); ++k) {
      const std::vector<int> weights = WeightsOf(sums, k);
      for (const int weight : weights) place_of_.emplace(weight, weights);
    }
  }

  // One product in place of the k-th of all sums, of their weights side by side or where they are.
  StepNode MergedProduct(const std::vector<Sum>& sums, size_t k, int home) {
    const StepNode& first = graph_.nodes[sums[0][k]];
    const Product& product = *first.products[0];
    const bool transposed = RightOf(first).transposed;
    const std::vector<int> weights = WeightsOf(sums, k);
    std::vector<int> biases;
    std::int64_t columns = 0;
    for (const Sum& sum : sums) {
      const StepNode& node = graph_.nodes[sum[k]];
      if (product.bias >= 0) biases.push_back(node.inputs[product.bias]);
      columns += RightOf(node).columns();
    }
    const bool stay = StayWhereTheyAre(first);
    const int matrix = stay ? kNoValue : SideBySide(first, weights, transposed ? 0 : 1);
    const int bias = product.bias < 0 ? kNoValue : SideBySide(first, biases, 0);
    const StepValue& one = graph_.values[first.outputs[0]];
    const int output = graph_.AddValue({.blob = NamesOf(sums, k),
                                        .info = {.dtype = one.info.dtype, .shape = one.info.shape.With(-1, columns)},
                                        .home = home,
                                        .producer = sums[0][k],
                                        .added = k > 0});
    if (stay) return ProductOfPartsLike(first, weights, bias, output);
    std::vector<int> inputs = first.inputs;
    inputs[product.right->input] = matrix;
    if (product.bias >= 0) inputs[product.bias] = bias;
    OperatorDef def = *first.def;
    for (size_t i = 0; i < inputs.size(); ++i) def.set_input(static_cast<int>(i), graph_.values[inputs[i]].blob);
    def.set_output(0, graph_.values[output].blob);
    return NodeLike(first, def, std::move(inputs), {output});
  }

  // Whether weights of such products are read where they are: they change from run to run where the step keeps values
  // for its gradient, and to lay them side by side would be a copy in each.
  bool StayWhereTheyAre(const StepNode& node) const {
    const Product& product = *node.products[0];
    const TensorInfo& left = graph_.values[WeightProducts::LeftOf(node)].info;
    const TensorInfo& weight = graph_.values[WeightProducts::WeightOf(node)].info;
    return is_trained_ && product.right->transposed && left.shape.rank() > 1 && left.shape[-1] == weight.shape[1] &&
           left.dtype == weight.dtype;
  }

  StepNode ProductOfPartsLike(const StepNode& like, const std::vector<int>& weights, int bias, int output) const {
    std::vector<std::string> names;
    for (const int weight : weights) names.push_back(graph_.values[weight].blob);
    std::vector<int> inputs = {WeightProducts::LeftOf(like)};
    if (bias != kNoValue) inputs.push_back(bias);
    const OperatorDef def =
        ProductOfParts(graph_.values[inputs[0]].blob, names, bias == kNoValue ? "" : graph_.values[bias].blob,
                       graph_.values[output].blob);
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    return NodeLike(like, def, std::move(inputs), {output});
  }

  static bool IsTrained(const StepGraph& graph) {
    const bool has_kernel = GetOperator("FCOfParts").FindKernel(graph.target->device) != nullptr;
    return has_kernel && !graph.backward && std::ranges::any_of(graph.homes, &Home::kept);
  }

  std::string NamesOf(const std::vector<Sum>& sums, size_t k) const {
    std::vector<std::string> names;
    for (const Sum& sum : sums) names.push_back(graph_.values[graph_.nodes[sum[k]].outputs[0]].blob);
    return Join(names, "|");
  }

  // Lays the values one beside the other along a dimension, once for all steps.
  int SideBySide(const StepNode& like, const std::vector<int>& values, int axis) {
    if (const auto found = joined_.find({values, axis}); found != joined_.end()) return found->second;
    std::vector<std::string> names;
    std::int64_t size = 0;
    for (const int value : values) {
      names.push_back(graph_.values[value].blob);
      size += graph_.values[value].info.shape[axis];
    }
    const StepValue& first = graph_.values[values[0]];
    const TensorInfo info{.dtype = first.info.dtype, .shape = first.info.shape.With(axis, size)};
    const int joined = AddOnceValue(Join(names, "|"), info);
    const Shape count = {static_cast<std::int64_t>(values.size())};
    const int sizes = AddOnceValue(Join(names, "|") + " sizes", {.dtype = DType::kInt32, .shape = count});
    const OperatorDef def = JoinOperator(names, axis, graph_.values[joined].blob, graph_.values[sizes].blob);
    once_.push_back(NodeLike(like, def, values, {joined, sizes}));
    return joined_[{values, axis}] = joined;
  }

  int AddOnceValue(std::string name, TensorInfo info) {
    graph_.homes.push_back({.kind = Home::Kind::kOnce});
    const int home = static_cast<int>(graph_.homes.size()) - 1;
    return graph_.AddValue({.blob = std::move(name), .outside = true, .info = std::move(info), .home = home});
  }

  void Merge(const std::vector<Sum>& sums) {
    if (!HaveSmallWeights(sums) || !HaveOnePlace(sums)) return;
    TakePlace(sums);
    graph_.homes.push_back({});
    const int home = static_cast<int>(graph_.homes.size()) - 1;
    std::vector<StepNode> merged;
    for (size_t k = 0; k < sums[0].size(); ++k) {
      merged.push_back(MergedProduct(sums, k, home));
    }
    merged.push_back(SplitOf(merged.back(), sums));
    for (size_t k = 0; k < sums[0].size(); ++k) {
      int place = sums[0][k];
      for (const Sum& sum : sums) {
        place = std::min(place, sum[k]);
        gone_[sum[k]] = true;
      }
      replaced_by_[place].push_back(std::move(merged[k]));
      if (k + 1 == sums[0].size()) replaced_by_[place].push_back(std::move(merged[k + 1]));
    }
  }

  // What all of them end as, each in memory of its own.
  StepNode SplitOf(const StepNode& product, const std::vector<Sum>& sums) {
    std::vector<int> parts;
    std::vector<std::string> names;
    std::vector<std::int64_t> sizes;
    for (const Sum& sum : sums) {
      parts.push_back(graph_.nodes[sum.back()].outputs[0]);
      StepValue& part = graph_.values[parts.back()];
      graph_.homes.push_back({});
      part.home = static_cast<int>(graph_.homes.size()) - 1;
      part.added = false;
      names.push_back(part.blob);
      sizes.push_back(part.info.shape[-1]);
    }
    const OperatorDef def = PartOperator(graph_.values[product.outputs[0]].blob, /*axis=*/-1, names, sizes);
    return NodeLike(product, def, {product.outputs[0]}, std::move(parts));
  }

  StepGraph& graph_;
  const Uses uses_;
  const WeightProducts products_;
  const bool is_trained_;
  std::map<int, std::vector<int>> place_of_;  // by weight, those that it lies beside, and itself
  std::map<std::pair<std::vector<int>, int>, int> joined_;
  std::vector<StepNode> once_;
  std::vector<bool> gone_;                          // by node
  std::vector<std::vector<StepNode>> replaced_by_;  // by node: what is put before it
};

// Products of one value become one where their weights, which all steps share, are small: these are laid side by side,
// once for all steps, or stay where they are in training, and what was a product is a part of the columns. So do
// products that are added up, if all of them are of the same values: x u + h v and x w + h z. Rounds otherwise: a
// product of more columns may add up in another order.
bool MergeProducts(StepGraph* graph) { return ProductMerger(graph).Run(); }

const PassRegistration registration({.name = "merge_products", .place = 170, .opt_level = 2, .run = MergeProducts});

}  // namespace

std::vector<ProductApart> FindProductsApart(StepGraph graph) { return ProductMerger(&graph).FindApart(); }

}  // namespace stepnet
