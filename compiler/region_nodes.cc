#include "stepnet/compiler/region_nodes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stepnet {
namespace {

// The operators of a node, with values in place of operands.
std::vector<RegionCall> CallsOf(const StepNode& node) {
  if (node.IsOneOperator()) {
    return {{.call = node.call,
             .def = node.def,
             .op_index = node.op_index,
             .inputs = node.inputs,
             .outputs = node.outputs}};
  }
  std::vector<RegionCall> calls(node.calls().begin(), node.calls().end());
  for (RegionCall& call : calls) {
    for (std::vector<int>* operands : {&call.inputs, &call.outputs}) {
      for (int& operand : *operands) operand = node.ValueOf(operand);
    }
  }
  return calls;
}

}  // namespace

std::set<int> OwnValues(const StepGraph& graph, const Uses& uses, std::span<const StepNode> nodes) {
  std::map<int, int> readers;  // among the nodes, by value
  for (const StepNode& node : nodes) {
    for (const int input : node.inputs) ++readers[input];
  }
  std::set<int> own;
  for (const StepNode& node : nodes) {
    for (const int output : node.given()) {
      const bool is_needed = !uses.IsTemporary(output) || uses.IsAddedTo(graph.values[output].home);
      if (!is_needed && uses.NumReaders(output) == readers[output]) own.insert(output);
    }
  }
  return own;
}

StepNode RegionOf(const StepGraph& graph, std::span<const StepNode> nodes, const std::set<int>& own) {
  StepNode region{.kind = StepNode::Kind::kRegion};
  RegionBody body;
  for (const StepNode& node : nodes) std::ranges::move(CallsOf(node), std::back_inserter(body.calls));
  if (!body.calls.empty()) region.op_index = body.calls.front().op_index;
  std::vector<int> given;
  for (const RegionCall& call : body.calls) {
    for (const int input : call.inputs) {
      const bool is_known = std::ranges::count(region.inputs, input) > 0 || std::ranges::count(given, input) > 0;
      if (!is_known) region.inputs.push_back(input);
    }
    for (const int output : call.outputs) {
      if (output == kNoValue) continue;
      const bool is_local = graph.homes[graph.values[output].home].kind == Home::Kind::kLocal;
      (is_local || own.contains(output) ? body.locals : region.outputs).push_back(output);
      given.push_back(output);
    }
  }
  std::map<int, int> operands;  // by value
  for (const std::vector<int>* values : {&region.inputs, &region.outputs, &body.locals}) {
    for (const int value : *values) operands.emplace(value, static_cast<int>(operands.size()));
  }
  for (RegionCall& call : body.calls) {
    for (std::vector<int>* values : {&call.inputs, &call.outputs}) {
      for (int& value : *values) value = value == kNoValue ? kNoValue : operands.at(value);
    }
  }
  region.body = std::make_shared<const RegionBody>(std::move(body));
  return region;
}

void FormRegions(std::span<const NodeRange> ranges, StepGraph* graph) {
  const Uses uses(*graph);
  std::vector<bool> gone(graph->nodes.size(), false);
  for (const auto [begin, end] : ranges) {
    const std::span nodes(graph->nodes.data() + begin, static_cast<size_t>(end - begin));
    for (const int value : OwnValues(*graph, uses, nodes)) {
      graph->values[value].home = static_cast<int>(graph->homes.size());
      graph->homes.push_back({.kind = Home::Kind::kLocal});
    }
    graph->nodes[begin] = RegionOf(*graph, nodes);
    std::fill(gone.begin() + begin + 1, gone.begin() + end, true);
  }
  graph->Erase(gone);
}

}  // namespace stepnet
