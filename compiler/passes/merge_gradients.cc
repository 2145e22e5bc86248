#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "stepnet/compiler/passes/expand.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/core/floating.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/side_by_side.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr char kType[] = "FCGradientOfParts";
constexpr size_t kMaxParts = 31;  // whose outputs, two of each and one, are among those that can be added to memory

// A node that gives the gradients of a product x w^T: dw = dy^T x, perhaps db, the sum of the rows of dy, and dx = dy
// w.
struct Gradients {
  int node = -1;
  int x = kNoValue, dy = kNoValue, w = kNoValue;
  int dw = kNoValue, db = kNoValue, dx = kNoValue;
};

// Whether outputs of the node may be gradients of a product: it has three inputs, and none of them is a bias.
bool MayGiveGradients(const StepNode& node) {
  return node.kind == StepNode::Kind::kProduct && node.inputs.size() == 3 &&
         std::ranges::any_of(node.products, [](const std::optional<Product>& product) {
           return product && product->bias < 0 && !(product->right && product->right->transposed);
         });
}

class GradientMerger {
 public:
  explicit GradientMerger(StepGraph* graph)
      : graph_(*graph),
        uses_(*graph),
        written_(WrittenBases(*graph)),
        in_loop_(*graph),
        reader_(graph->values.size(), -1),
        gone_(graph->nodes.size(), false),
        put_before_(graph->nodes.size()) {
    for (size_t n = 0; n < graph->nodes.size(); ++n) {
      for (const int input : graph->nodes[n].inputs) reader_[input] = static_cast<int>(n);
    }
  }

  bool Run() {
    for (const auto& [key, group] : FindGroups()) {
      for (std::vector<Gradients>& parts : OfOnePlace(group)) {
        if (parts.size() > 1 && parts.size() <= kMaxParts && AreSmall(parts)) Merge(parts);
      }
    }
    if (!std::ranges::count(gone_, true)) return false;
    ReplaceNodes(std::move(put_before_), gone_, {}, &graph_);
    Expand(&graph_);
    return true;
  }

 private:
  // What gradients that become one have in common: that no step waits for them, so that those of the loop, which gain
  // most, come first; x, whether its gradient is computed, and the sizes of dy before the last one.
  using Key = std::tuple<bool, int, bool, std::string>;

  struct Place {
    std::vector<int> values = {};  // that lie side by side
    int joined = kNoValue;
    int node = -1;  // that it is given before
  };

  std::map<Key, std::vector<Gradients>> FindGroups() {
    std::map<std::pair<int, bool>, std::vector<Gradients>> of_x;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::optional<Gradients> found = Find(static_cast<int>(n));
      if (found) of_x[{found->x, found->dx != kNoValue}].push_back(*found);
    }
    std::map<Key, std::vector<Gradients>> groups;
    for (const auto& [key, all] : of_x) {
      if (all.size() < 2) continue;
      for (const Gradients& gradients : all) {
        const std::string rows = StrCat(graph_.values[gradients.dy].info.shape.With(-1, 1));
        groups[{!in_loop_.Contains(gradients.node), key.first, key.second, rows}].push_back(gradients);
      }
    }
    return groups;
  }

  const TensorInfo& InfoOf(int value) const { return graph_.values[value].info; }

  // Whether a step leaves the value where it is.
  bool StaysAsItIs(int value) const {
    const Home& home = graph_.HomeOf(value);
    if (home.kind == Home::Kind::kTemporary) return uses_.NumValues(graph_.values[value].home) == 1;
    return home.kind == Home::Kind::kOutside && !written_.contains(home.slot.base);
  }

  // The move that adds the value, which nothing else reads, to memory outside; -1: there is none.
  int MoveOf(int value) const {
    const int reader = reader_[value];
    return uses_.HasOneReader(value) && AddsTermOutside(graph_, graph_.nodes[reader]) ? reader : -1;
  }

  bool IsForNobody(int value) const { return uses_.NumReaders(value) == 0 && uses_.IsApart(value); }

  std::optional<Gradients> Find(int n) const {
    const StepNode& node = graph_.nodes[n];
    if (!MayGiveGradients(node)) return {};
    Gradients found{.node = n};
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue || IsForNobody(node.outputs[o])) continue;
      if (!node.products[o] || !Take(node, *node.products[o], node.outputs[o], &found)) return {};
    }
    if (found.dw == kNoValue && found.dx != kNoValue) {  // nobody asks for dw
      const auto is_x = [&](int input) { return input != found.dy && input != found.w; };
      const auto x = std::ranges::find_if(node.inputs, is_x);
      if (x != node.inputs.end()) found.x = *x;
    }
    return MayBePart(found) ? std::optional(found) : std::nullopt;
  }

  // Says which gradient the value is; returns whether it is one.
  bool Take(const StepNode& node, const Product& product, int value, Gradients* found) const {
    const ProductFactor &left = product.left, &right = product.right.value_or(ProductFactor{.shape = {1, 1}});
    const int dy = node.inputs[left.input];
    if (product.bias >= 0 || left.shape.rank() != 2 || right.shape.rank() != 2 || right.transposed) return false;
    if (found->dy != kNoValue && found->dy != dy) return false;
    found->dy = dy;
    if (!product.right) {
      if (left.transposed) return false;
      found->db = value;
      return true;
    }
    int& gradient = left.transposed ? found->dw : found->dx;
    if (gradient != kNoValue) return false;
    gradient = value;
    (left.transposed ? found->x : found->w) = node.inputs[right.input];
    return true;
  }

  bool MayBePart(const Gradients& of) const {
    if (of.x == kNoValue || of.x == of.dy || !DependsOnInputsAlone(graph_, graph_.nodes[of.node])) return false;
    const TensorInfo &x = InfoOf(of.x), &dy = InfoOf(of.dy);
    const bool fits = x.shape.rank() >= 2 && x.shape.rank() == dy.shape.rank() && x.dtype == dy.dtype &&
                      x.shape.With(-1, 1) == dy.shape.With(-1, 1) && StaysAsItIs(of.x) && StaysAsItIs(of.dy);
    if (!fits) return false;
    for (const int sum : {of.dw, of.db}) {
      if (sum != kNoValue && MoveOf(sum) < 0) return false;
    }
    const TensorInfo weight{.dtype = x.dtype, .shape = {dy.shape[-1], x.shape[-1]}};
    if (of.dw != kNoValue && InfoOf(of.dw) != weight) return false;
    return of.dx == kNoValue || (IsGivenWhole(graph_, written_, of.w) && InfoOf(of.w) == weight && InfoOf(of.dx) == x &&
                                 uses_.NumReaders(of.dx) == 1);
  }

  // Those whose dy lie side by side already, for others, are taken as they lie, all or none, and the others together.
  std::vector<std::vector<Gradients>> OfOnePlace(const std::vector<Gradients>& group) const {
    std::map<int, std::vector<Gradients>> by_place;
    std::set<int> seen;
    for (const Gradients& gradients : group) {
      if (!seen.insert(gradients.dy).second) return {};
      const auto found = place_of_.find(gradients.dy);
      by_place[found == place_of_.end() ? -1 : found->second].push_back(gradients);
    }
    std::vector<std::vector<Gradients>> result;
    for (auto& [number, parts] : by_place) {
      if (number >= 0) {
        const std::vector<int>& values = places_[number].values;
        if (values.size() != parts.size()) continue;
        std::ranges::sort(parts, {}, [&](const Gradients& of) { return std::ranges::find(values, of.dy); });
      }
      result.push_back(std::move(parts));
    }
    return result;
  }

  // The node that adds up all dx, behind node `at`, where it adds up its inputs, and its sum, if it has no other terms,
  // may be given there; -1: there is none.
  int SumOfDx(const std::vector<Gradients>& parts, int at) const {
    const int n = reader_[parts[0].dx];
    const StepNode& node = graph_.nodes[n];
    if (n <= at || !node.IsOneOperator() || node.outputs[0] == kNoValue || !AddsItsInputs(graph_, node)) return -1;
    const int sum = node.outputs[0];
    int num_values = 1;  // in the memory of the sum, where nets often put a term, too
    for (const Gradients& part : parts) {
      if (reader_[part.dx] != n || !uses_.IsTermAlone(part.dx, sum)) return -1;
      if (graph_.values[part.dx].home == graph_.values[sum].home) ++num_values;
    }
    if (node.inputs.size() > parts.size()) return n;
    const bool is_free = uses_.NumValues(graph_.values[sum].home) == num_values;
    return is_free && !uses_.IsTouched(graph_.HomeOf(sum), at + 1, n) ? n : -1;
  }

  // Whether what a move adds may be added behind node `at`.
  bool MayBeAddedAt(int value, int at) const {
    const int move = MoveOf(value), producer = graph_.values[value].producer;
    const Home& outside = graph_.HomeOf(graph_.nodes[move].outputs[0]);
    return !uses_.IsTouched(outside, std::min(producer, at), std::max(move, at) + 1);
  }

  bool MayBecomeOne(const std::vector<Gradients>& parts, int at) const {
    return std::ranges::all_of(parts, [&](const Gradients& part) {
      return (part.dw == kNoValue || MayBeAddedAt(part.dw, at)) && (part.db == kNoValue || MayBeAddedAt(part.db, at));
    });
  }

  // Calls take longer than what a step has: sums over all steps would read columns of rows that are far apart, which
  // takes longer than rows of their own.
  bool AreSmall(const std::vector<Gradients>& parts) const {
    std::int64_t bytes = 0;
    for (const Gradients& part : parts) bytes += ComputedBytes(InfoOf(part.dy));
    return bytes <= graph_.target->small_step_bytes;
  }

  void Merge(const std::vector<Gradients>& parts) {
    int last = -1;
    for (const Gradients& part : parts) last = std::max(last, part.node);
    int at = last;
    const auto place = place_of_.find(parts[0].dy);
    if (place != place_of_.end()) at = std::max(at, places_[place->second].node);
    const bool has_dx = parts[0].dx != kNoValue;
    const int sum = has_dx ? SumOfDx(parts, at) : -1;
    if ((has_dx && sum < 0) || !MayBecomeOne(parts, at)) return;
    std::vector<StepNode>& nodes = put_before_[at];
    std::vector<int> inputs = {parts[0].x, SideBySide(parts, at)};
    for (const Gradients& part : parts) {
      if (has_dx) inputs.push_back(part.w);
    }
    StepNode merged = Merged(parts, graph_.nodes[last], std::move(inputs));
    if (has_dx) TakeSum(parts, sum, merged.outputs.back());
    nodes.push_back(std::move(merged));
    for (const Gradients& part : parts) {
      gone_[part.node] = true;
      for (const int output : graph_.nodes[part.node].given()) {
        if (IsForNobody(output)) graph_.ForgetLast(output);
      }
      for (const int gradient : {part.dw, part.db}) {
        if (gradient == kNoValue) continue;
        const int move = MoveOf(gradient);
        gone_[move] = true;
        nodes.push_back(graph_.nodes[move]);
      }
    }
  }

  // What adds up all dx adds `dx` in their place; where that is all, `dx` is the sum.
  void TakeSum(const std::vector<Gradients>& parts, int n, int& dx) {
    const StepNode& sum = graph_.nodes[n];
    for (const Gradients& part : parts) graph_.ForgetLast(part.dx);
    std::vector<int> terms;
    for (const int term : sum.inputs) {
      if (std::ranges::count(parts, term, &Gradients::dx) == 0) terms.push_back(term);
    }
    if (terms.empty()) {
      dx = sum.outputs[0];
      gone_[n] = true;
      return;
    }
    terms.push_back(dx);
    OperatorDef def = *sum.def;
    def.clear_input();
    for (const int term : terms) def.add_input(graph_.values[term].blob);
    const StepNode::Kind kind = sum.kind;
    graph_.nodes[n] = NodeLike(sum, def, std::move(terms), sum.outputs);
    graph_.nodes[n].kind = kind;
  }

  int AddValue(std::string name, TensorInfo info) {
    graph_.homes.push_back({});
    const int home = static_cast<int>(graph_.homes.size()) - 1;
    return graph_.AddValue({.blob = std::move(name), .info = std::move(info), .home = home, .producer = 0});
  }

  // Lays the values side by side, before node `at`.
  int Joined(const std::vector<int>& values, int at) {
    std::vector<std::string> names;
    std::int64_t columns = 0;
    for (const int value : values) {
      names.push_back(graph_.values[value].blob);
      columns += InfoOf(value).shape[-1];
    }
    const TensorInfo one = InfoOf(values[0]);
    const std::string name = Join(names, "|");
    const int joined = AddValue(name, {.dtype = one.dtype, .shape = one.shape.With(-1, columns)});
    const Shape count = {static_cast<std::int64_t>(values.size())};
    const int sizes = AddValue(name + " sizes", {.dtype = DType::kInt32, .shape = count});
    const OperatorDef def = JoinOperator(names, one.shape.rank() - 1, name, name + " sizes");
    put_before_[at].push_back(NodeLike(graph_.nodes[at], def, values, {joined, sizes}));
    return joined;
  }

  // The dy side by side, before node `at` or where they lie so already.
  int SideBySide(const std::vector<Gradients>& parts, int at) {
    if (const auto found = place_of_.find(parts[0].dy); found != place_of_.end()) return places_[found->second].joined;
    Place place{.node = at};
    for (const Gradients& part : parts) {
      place.values.push_back(part.dy);
      place_of_[part.dy] = static_cast<int>(places_.size());
    }
    place.joined = Joined(place.values, at);
    places_.push_back(place);
    return place.joined;
  }

  // Gives all of them by one operator.
  StepNode Merged(const std::vector<Gradients>& parts, const StepNode& like, std::vector<int> inputs) {
    std::vector<std::int64_t> columns;
    std::vector<int> outputs, sums;
    std::vector<std::string> names, names_of_sums;
    for (const Gradients& part : parts) {
      columns.push_back(InfoOf(part.dy).shape[-1]);
      outputs.push_back(part.dw);
      sums.push_back(part.db);
      const std::string& dy = graph_.values[part.dy].blob;
      names.push_back(part.dw == kNoValue ? dy + " product" : graph_.values[part.dw].blob);
      names_of_sums.push_back(part.db == kNoValue ? dy + " sum" : graph_.values[part.db].blob);
    }
    const bool has_sums = std::ranges::any_of(sums, [](int value) { return value != kNoValue; });
    if (has_sums) {
      outputs.insert(outputs.end(), sums.begin(), sums.end());
      names.insert(names.end(), names_of_sums.begin(), names_of_sums.end());
    }
    if (parts[0].dx != kNoValue) {
      outputs.push_back(AddValue(graph_.values[parts[0].dx].blob, InfoOf(parts[0].dx)));
      names.push_back(graph_.values[parts[0].dx].blob);
    }
    std::vector<std::string> input_names;
    for (const int input : inputs) input_names.push_back(graph_.values[input].blob);
    NetDef net;
    AddOp(&net, kType, input_names, names).Ints("parts", columns).Int("no_bias", has_sums ? 0 : 1);
    return NodeLike(like, net.op(0), std::move(inputs), std::move(outputs));
  }

  StepGraph& graph_;
  const Uses uses_;
  const std::set<int> written_;  // bases
  NodesInLoop in_loop_;
  std::vector<int> reader_;      // by value: the last node that reads it
  std::map<int, int> place_of_;  // by value: in places_
  std::vector<Place> places_;
  std::vector<bool> gone_;  // nodes
  std::vector<std::vector<StepNode>> put_before_;
};

// The gradients of several products of one x with weights that all steps share, as those of the gates of an LSTM that
// is written as eight products, become those of one product: the gradients of what the products gave lie side by side,
// so that the gradient of x, which was a sum of products, is one, with the weights where they are. What adds gradients
// of weights and biases to memory outside comes behind it. Only where a step has little: calls take longer then. Rounds
// otherwise: the terms of a sum are added up in another order.
bool MergeGradients(StepGraph* graph) {
  if (std::ranges::count_if(graph->nodes, MayGiveGradients) < 2) return false;
  if (GetOperator(kType).FindKernel(graph->target->device) == nullptr) return false;
  return GradientMerger(graph).Run();
}

const PassRegistration registration({.name = "merge_gradients", .place = 55, .opt_level = 2, .run = MergeGradients});

}  // namespace
}  // namespace stepnet
