#include <algorithm>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Whether the operators may change the input, by its place among the inputs, before they have read all of it.
bool IsOverwritten(const StepGraph& graph, const StepNode& node, size_t input) {
  const StepValue& read = graph.values[node.inputs[input]];
  const Home& from = graph.homes[read.home];
  for (size_t output = 0; output < node.outputs.size(); ++output) {
    if (node.outputs[output] == kNoValue) continue;
    const StepValue& written = graph.values[node.outputs[output]];
    const Home& to = graph.homes[written.home];
    if (written.home == read.home || !ShareBytes(to, from)) continue;  // one blob: checked with the net
    const bool is_same = to.slot.BeginInBase() == from.slot.BeginInBase() && to.slot.row_bytes == from.slot.row_bytes &&
                         to.slot.bytes == from.slot.bytes;
    if (!is_same || node.call == nullptr) return true;
    if (!node.call->schema().AllowsInPlace(static_cast<int>(input), static_cast<int>(output))) return true;
  }
  return false;
}

// Kernels read and write in any order. Where links show an operator the same rows as an input and as an output, or rows
// that overlap, and it may not work in place there, it reads a copy of the input.
bool CopyInputs(StepGraph* graph) {
  std::vector<StepNode> nodes;
  nodes.reserve(graph->nodes.size());
  for (StepNode& node : graph->nodes) {
    for (size_t i = 0; node.RunsOperators() && i < node.inputs.size(); ++i) {
      if (!IsOverwritten(*graph, node, i)) continue;
      StepValue copy = graph->values[node.inputs[i]];
      const bool is_blob = copy.dynamic || copy.info.dtype == DType::kString;
      graph->homes.push_back({.kind = is_blob ? Home::Kind::kDynamic : Home::Kind::kTemporary});
      copy.blob = StrCat(copy.blob, " for op ", node.op_index);
      copy.version = -1;
      copy.added = false;
      copy.home = static_cast<int>(graph->homes.size()) - 1;
      copy.producer = static_cast<int>(nodes.size());
      const int value = graph->AddValue(copy);
      nodes.push_back({.kind = StepNode::Kind::kMove, .inputs = {node.inputs[i]}, .outputs = {value}});
      node.inputs[i] = value;
    }
    nodes.push_back(std::move(node));
  }
  const bool has_copies = nodes.size() > graph->nodes.size();
  graph->nodes = std::move(nodes);
  if (has_copies) graph->FindProducers();
  return has_copies;
}

const PassRegistration registration(
    {.name = "copy_inputs", .place = 140, .opt_level = 0, .required = true, .run = CopyInputs});

}  // namespace
}  // namespace stepnet
