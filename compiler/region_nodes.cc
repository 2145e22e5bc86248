#include "stepnet/compiler/region_nodes.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/expansion.h"

namespace stepnet {
namespace {

// Adds the operators of a node, with values in place of operands.
void AddCalls(const StepNode& node, std::vector<RegionCall>* calls) {
  if (node.IsOneOperator()) {
    calls->push_back({.call = node.call,
                      .def = node.def,
                      .op_index = node.op_index,
                      .net = node.net,
                      .inputs = node.inputs,
                      .outputs = node.outputs});
    return;
  }
  for (RegionCall call : node.calls()) {
    for (std::vector<int>* operands : {&call.inputs, &call.outputs}) {
      for (int& operand : *operands) operand = node.ValueOf(operand);
    }
    calls->push_back(std::move(call));
  }
}

// The operands of a region are its values, in their order.
std::vector<std::pair<int, int>> OperandsByValue(const StepNode& region, const std::vector<int>& locals) {
  std::vector<std::pair<int, int>> operands;
  for (const std::vector<int>* values : {&region.inputs, &region.outputs, &locals}) {
    for (const int value : *values) operands.emplace_back(value, static_cast<int>(operands.size()));
  }
  std::ranges::sort(operands);
  return operands;
}

// Whether one of the nodes that follow gives all of the value's home anew, which is the step's own: memory outside may
// be read by other names in between.
bool IsOverwritten(const StepGraph& graph, int value, std::span<const StepNode* const> followers) {
  const StepValue& of = graph.values[value];
  if (graph.homes[of.home].kind != Home::Kind::kTemporary) return false;
  return std::ranges::any_of(followers, [&](const StepNode* node) {
    return std::ranges::any_of(node->given(), [&](int other) {
      const StepValue& later = graph.values[other];
      return later.home == of.home && later.info == of.info && !later.added;
    });
  });
}

}  // namespace

std::vector<int> OwnValues(const StepGraph& graph, const Uses& uses, std::span<const StepNode* const> nodes) {
  std::vector<int> read;
  for (const StepNode* node : nodes) read.insert(read.end(), node->inputs.begin(), node->inputs.end());
  std::ranges::sort(read);
  std::vector<int> own;
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (const int output : nodes[n]->given()) {
      const bool is_needed = (!uses.IsTemporary(output) && !IsOverwritten(graph, output, nodes.subspan(n + 1))) ||
                             uses.IsAddedTo(graph.values[output].home);
      const auto readers = std::ranges::equal_range(read, output);
      if (!is_needed && uses.NumReaders(output) == std::ssize(readers)) own.push_back(output);
    }
  }
  std::ranges::sort(own);
  return own;
}

StepNode RegionOf(const StepGraph& graph, std::span<const StepNode* const> nodes, std::span<const int> own) {
  StepNode region{.kind = StepNode::Kind::kRegion};
  RegionBody body;
  body.calls.reserve(nodes.size());
  for (const StepNode* node : nodes) AddCalls(*node, &body.calls);
  if (!body.calls.empty()) {
    // What a step back computes again is of another net than the step itself, whose region this is.
    const auto own_net = std::ranges::find_if(body.calls, [](const RegionCall& call) { return call.net.empty(); });
    const RegionCall& named = own_net == body.calls.end() ? body.calls.front() : *own_net;
    region.op_index = named.op_index;
    region.net = named.net;
  }
  std::vector<bool> is_operand(graph.values.size(), false);
  for (const RegionCall& call : body.calls) {
    for (const int input : call.inputs) {
      if (!is_operand[input]) region.inputs.push_back(input);
      is_operand[input] = true;
    }
    for (const int output : call.outputs) {
      if (output == kNoValue) continue;
      is_operand[output] = true;
      const bool is_local = graph.homes[graph.values[output].home].kind == Home::Kind::kLocal;
      (is_local || std::ranges::binary_search(own, output) ? body.locals : region.outputs).push_back(output);
    }
  }
  const std::vector<std::pair<int, int>> operands = OperandsByValue(region, body.locals);
  for (RegionCall& call : body.calls) {
    for (std::vector<int>* values : {&call.inputs, &call.outputs}) {
      for (int& value : *values) {
        if (value != kNoValue)
          value = std::ranges::lower_bound(operands, value, {}, &std::pair<int, int>::first)->second;
      }
    }
  }
  region.body = std::make_shared<const RegionBody>(std::move(body));
  return region;
}

StepNode JoinedNodeOf(StepNode region, std::vector<int> begins) {
  RegionBody body = *region.body;
  body.begins = std::move(begins);
  region.body = std::make_shared<const RegionBody>(std::move(body));
  return region;
}

std::vector<StepNode> RegionsOf(const StepGraph& graph, const StepNode& node) {
  std::vector<StepNode> calls;
  for (const RegionCall& call : node.calls()) {
    StepNode& one = calls.emplace_back(StepNode{.kind = StepNode::Kind::kRegion,
                                                .call = call.call,
                                                .def = call.def,
                                                .op_index = call.op_index,
                                                .net = call.net});
    for (const int input : call.inputs) one.inputs.push_back(node.ValueOf(input));
    for (const int output : call.outputs) one.outputs.push_back(node.ValueOf(output));
  }
  std::vector<int> ends = node.body->begins;
  ends.push_back(static_cast<int>(calls.size()));
  std::vector<StepNode> regions;
  int begin = 0;
  for (const int end : ends) {
    std::vector<const StepNode*> of_region;
    for (; begin < end; ++begin) of_region.push_back(&calls[begin]);
    regions.push_back(RegionOf(graph, of_region));
  }
  return regions;
}

bool SumsWhatRegionGives(const StepGraph& graph, const Uses& uses, const StepNode& node) {
  if (node.kind != StepNode::Kind::kCall || node.by_blobs || !node.call->schema().expansion) return false;
  const std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  const ShapeQuery query(*node.call, inputs);
  const Expansion expansion(query);
  const std::vector<RegionPart> parts = expansion.sum_parts();
  if (parts.size() != 1) return false;
  const bool is_of_rows = parts[0].region.outputs[0].kind == RegionOutputKind::kRows;
  if (!is_of_rows && graph.target->device != DeviceKind::kCpu) return false;
  const int summed = node.inputs[expansion.sums()[0]->input];
  const int producer = graph.values[summed].producer;
  return producer >= 0 && uses.HasOneReader(summed) && graph.nodes[producer].kind == StepNode::Kind::kRegion;
}

void FormRegions(std::span<const NodeRange> ranges, StepGraph* graph) {
  const Uses uses(*graph);
  std::vector<bool> gone(graph->nodes.size(), false);
  for (const auto [begin, end] : ranges) {
    std::vector<const StepNode*> nodes;
    for (int n = begin; n < end; ++n) nodes.push_back(&graph->nodes[n]);
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
