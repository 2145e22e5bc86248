#include <algorithm>
#include <map>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/weight_products.h"
#include "stepnet/compiler/uses.h"
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
  // Rows of several steps, as windows have them, would make each step wait for the one before.
  return home.slot.row_bytes == home.slot.bytes && !home.starts_at_zero && IsFloatOrDouble(sum.info.dtype) &&
         term.info.dtype == sum.info.dtype && term.info.shape == sum.info.shape && uses.HasOneReader(move.inputs[0]) &&
         graph.nodes[term.producer].kind == StepNode::Kind::kRegion && graph.nodes[term.producer].IsOneOperator();
}

// The stage that takes node n one step at a time; -1: none does.
std::ptrdiff_t LoopOf(const StepGraph& graph, int n) {
  if (graph.stages.empty()) return 0;
  const auto found = std::ranges::find_if(
      graph.stages, [&](const Stage& stage) { return stage.begin <= n && n < stage.end && stage.steps_at_once == 1; });
  return found == graph.stages.end() ? -1 : found - graph.stages.begin();
}

// The sum of what the memory holds, `before`, and the term, in that memory.
StepNode SumOver(const StepGraph& graph, const StepNode& move, int before) {
  const int term = move.inputs[0], sum = move.outputs[0];
  OperatorDef def;
  def.set_type("Sum");
  for (const int input : {before, term}) def.add_input(graph.values[input].blob);
  def.add_output(graph.values[sum].blob);
  const StepNode& giver = graph.nodes[graph.values[term].producer];
  StepNode node = NodeLike(giver, def, {before, term}, {sum});
  node.kind = StepNode::Kind::kRegion;
  node.net = StrCat("sums over the steps of ", graph.name);  // which is no operator of the step net
  return node;
}

// Adding to rows outside becomes an operator with a formula, with the same bits: fuse_regions joins it with what gives
// the term. What is added up over the steps stays as it is: others may add to that, too.
bool AddByRegions(StepGraph* graph) {
  const Uses uses(*graph);
  std::map<int, int> held;  // the last value of each home, before a node
  bool has_changed = false;
  for (int n = 0; n < static_cast<int>(graph->nodes.size()); ++n) {
    StepNode& node = graph->nodes[n];
    const bool may_change = node.kind == StepNode::Kind::kMove && AddsToRowsOfStep(*graph, uses, node);
    const int loop = may_change ? static_cast<int>(LoopOf(*graph, n)) : -1;
    if (loop >= 0 && loop == LoopOf(*graph, graph->values[node.inputs[0]].producer)) {
      const int sum = node.outputs[0];
      const auto known = held.find(graph->values[sum].home);
      StepValue there = graph->values[sum];
      there.version = there.producer = -1;
      there.added = false;
      const int before = known != held.end() ? known->second : graph->AddValue(there);
      node = SumOver(*graph, node, before);
      graph->values[sum].added = false;
      has_changed = true;
    }
    for (const int output : node.given()) held[graph->values[output].home] = output;
  }
  return has_changed;
}

const PassRegistration registration({.name = "add_by_regions", .place = 208, .opt_level = 1, .run = AddByRegions});

}  // namespace
}  // namespace stepnet
