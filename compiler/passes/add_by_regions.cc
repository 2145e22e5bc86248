#include <algorithm>
#include <map>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/weight_products.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Whether a move adds what an operator with a formula gives to rows that are the step's own.
bool AddsToRowsOfStep(const StepGraph& graph, const Uses& uses, const StepNode& move) {
  if (!AddsTermOutside(graph, move)) return false;
  const StepValue &term = graph.values[move.inputs[0]], &sum = graph.values[move.outputs[0]];
  const Home& home = graph.homes[sum.home];
  // Rows of several steps, as windows have them, would make each step wait for the one before. Who sees rows of an
  // empty batch no bytes tell.
  return home.slot.row_bytes == home.slot.bytes && home.slot.bytes > 0 && !home.starts_at_zero &&
         IsFloatOrDouble(sum.info.dtype) && term.info.dtype == sum.info.dtype && term.info.shape == sum.info.shape &&
         uses.HasOneReader(move.inputs[0]) && graph.nodes[term.producer].kind == StepNode::Kind::kRegion &&
         graph.nodes[term.producer].IsOneOperator();
}

// The stage that takes node n one step at a time; -1: none does.
std::ptrdiff_t LoopOf(const StepGraph& graph, int n) {
  if (graph.stages.empty()) return 0;
  const auto found = std::ranges::find_if(
      graph.stages, [&](const Stage& stage) { return stage.begin <= n && n < stage.end && stage.steps_at_once == 1; });
  return found == graph.stages.end() ? -1 : found - graph.stages.begin();
}

// The sum of what there is, `terms`, and what the move adds, in the memory of the first of them.
StepNode SumOver(const StepGraph& graph, const StepNode& move, std::vector<int> terms) {
  const int term = move.inputs[0], sum = move.outputs[0];
  terms.push_back(term);
  OperatorDef def;
  def.set_type("Sum");
  for (const int input : terms) def.add_input(graph.values[input].blob);
  def.add_output(graph.values[sum].blob);
  const StepNode& giver = graph.nodes[graph.values[term].producer];
  StepNode node = NodeLike(giver, def, terms, {sum});
  node.kind = StepNode::Kind::kRegion;
  node.net = StrCat("sums over the steps of ", graph.name);  // which is no operator of the step net
  return node;
}

class RegionAdder {
 public:
  explicit RegionAdder(StepGraph* graph) : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false) {}

  bool Run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (IsSumOfRegions(n)) Replace(n);
      for (const int output : graph_.nodes[n].given()) held_[graph_.values[output].home] = output;
    }
    if (sums_.empty()) return false;
    graph_.Erase(gone_);
    return true;
  }

 private:
  bool IsSumOfRegions(int n) const {
    const StepNode& node = graph_.nodes[n];
    if (node.kind != StepNode::Kind::kMove || !AddsToRowsOfStep(graph_, uses_, node)) return false;
    const std::ptrdiff_t loop = LoopOf(graph_, n);
    return loop >= 0 && loop == LoopOf(graph_, graph_.values[node.inputs[0]].producer);
  }

  void Replace(int n) {
    StepNode& node = graph_.nodes[n];
    const int sum = node.outputs[0], home = graph_.values[sum].home;
    const auto before = sums_.find(home);
    if (before != sums_.end() && NobodySees(before->second, n)) {
      node = SumOver(graph_, node, graph_.nodes[before->second].inputs);
      gone_[before->second] = true;
    } else {
      node = SumOver(graph_, node, {HeldBy(home, graph_.values[sum])});
    }
    graph_.values[sum].added = false;
    sums_[home] = n;
  }

  // Whether nobody reads what node `sum` gives, or adds to it by another name, before node n writes over it.
  bool NobodySees(int sum, int n) const {
    const int value = graph_.nodes[sum].outputs[0];
    const int home = graph_.values[value].home;
    const auto adds_there = [&](const StepNode& node) {
      return std::ranges::any_of(
          node.given(), [&](int v) { return ShareBytes(graph_.homes[graph_.values[v].home], graph_.homes[home]); });
    };
    return uses_.NumReaders(value) == 0 && LoopOf(graph_, sum) == LoopOf(graph_, n) &&
           !uses_.IsTouched(graph_.homes[home], sum + 1, n) &&
           std::none_of(&graph_.nodes[sum] + 1, &graph_.nodes[n], adds_there);
  }

  int HeldBy(int home, StepValue like) {
    if (const auto known = held_.find(home); known != held_.end()) return known->second;
    like.version = like.producer = -1;
    like.added = false;
    return graph_.AddValue(like);
  }

  StepGraph& graph_;
  const Uses uses_;          // as it was
  std::map<int, int> held_;  // the last value of each home, before a node
  std::map<int, int> sums_;  // the last node that this pass has made, by the home that it adds to
  std::vector<bool> gone_;   // by node
};

// Adding to rows outside becomes an operator with a formula, with the same bits: fuse_regions joins it with what gives
// the term. What is added there one after the other is one sum. What is added up over the steps stays as it is: others
// may add to that, too.
bool AddByRegions(StepGraph* graph) { return RegionAdder(graph).Run(); }

const PassRegistration registration({.name = "add_by_regions", .place = 208, .opt_level = 1, .run = AddByRegions});

}  // namespace
}  // namespace stepnet
