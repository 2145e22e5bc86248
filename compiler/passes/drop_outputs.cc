#include <algorithm>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// Elsewhere nothing would be gained, and a node that gives all joins more regions.
bool GivesRowsAndOthers(const StepGraph& graph, const StepNode& node) {
  if (node.by_blobs || !node.call->schema().rows) return false;
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  const std::optional<RowOperands> rule = node.call->schema().rows(ShapeQuery(*node.call, inputs));
  return rule && !rule->outputs.empty() && rule->outputs.size() < node.outputs.size();
}

// Takes away the outputs that nothing reads, in the step or outside, of operators which compute only those of their
// outputs that they are asked for (Kernel::can_leave_out): the gradient of weights that nobody trains.
bool DropOutputs(StepGraph* graph) {
  const Uses uses(*graph);
  bool is_changed = false;
  const auto is_needed = [&](int v) { return v == kNoValue || uses.NumReaders(v) > 0 || !uses.IsTemporary(v); };
  for (StepNode& node : graph->nodes) {
    if (!node.IsOneOperator()) continue;
    if (std::ranges::all_of(node.outputs, is_needed) || std::ranges::none_of(node.outputs, is_needed)) continue;
    if (!CanLeaveOut(*graph, node) || !GivesRowsAndOthers(*graph, node)) continue;
    for (int& output : node.outputs) {
      if (is_needed(output)) continue;
      graph->ForgetLast(output);
      output = kNoValue;
      is_changed = true;
    }
  }
  if (is_changed) graph->Erase(std::vector<bool>(graph->nodes.size(), false));
  return is_changed;
}

const PassRegistration registration({.name = "drop_outputs", .place = 110, .opt_level = 0, .run = DropOutputs});

}  // namespace
}  // namespace stepnet
