#include "stepnet/executor/direct_sums.h"

#include <algorithm>

namespace stepnet {
namespace {

// Whether the operator runs with blobs: itself, or because another value of a blob that it uses has no known shape.
bool RunsWithBlobs(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node) {
  const auto is_dynamic = [&](int value) {
    const std::string& blob = graph.values[value].blob;
    return request.bound_dynamic.contains(blob) || std::ranges::any_of(graph.values, [&](const StepValue& other) {
             return other.blob == blob && other.dynamic;
           });
  };
  return node.dynamic || std::ranges::any_of(node.inputs, is_dynamic) || std::ranges::any_of(node.outputs, is_dynamic);
}

// Whether the operator has an input or output that is linked to some of these bytes.
bool IsTouchedBy(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node, const Slot& memory) {
  const auto is_touched = [&](int value) {
    return std::ranges::any_of(request.bound, [&](const BoundBlob& bound) {
      return bound.slot.blob == graph.values[value].blob && ShareBytes(bound.slot, memory);
    });
  };
  return std::ranges::any_of(node.inputs, is_touched) || std::ranges::any_of(node.outputs, is_touched);
}

// Whether the blob of a sum has one value in a step, of the sum's dtype and size, from an operator that can add.
bool OnlyOperatorAdds(const StepPlanRequest& request, const StepGraph& graph, const Transfer& transfer) {
  const std::string& blob = transfer.blob;
  const bool is_bound = std::ranges::any_of(request.bound, [&](const BoundBlob& b) { return b.slot.blob == blob; });
  if (is_bound || request.bound_dynamic.contains(blob) || (request.keep && request.keep(blob))) return false;
  if (std::ranges::count(graph.values, blob, &StepValue::blob) != 1) return false;
  const int index = graph.last.at(blob);
  const StepValue& value = graph.values[index];
  if (value.producer < 0 || value.dynamic || value.info.dtype != transfer.info.dtype ||
      value.info.shape.size() != transfer.info.shape.size()) {
    return false;
  }
  const bool is_read = std::ranges::any_of(
      graph.nodes, [&](const StepNode& node) { return std::ranges::count(node.inputs, index) > 0; });
  const StepNode& node = graph.nodes[value.producer];
  const auto output = static_cast<int>(std::ranges::find(node.outputs, index) - node.outputs.begin());
  return !is_read && !RunsWithBlobs(request, graph, node) &&
         std::ranges::count(node.init.schema().can_add, output) > 0 &&
         !IsTouchedBy(request, graph, node, transfer.outside);
}

}  // namespace

std::map<std::string, const Transfer*> FindDirectSums(const StepPlanRequest& request, const StepGraph& graph) {
  std::map<std::string, int> num_transfers;
  for (const Transfer& transfer : request.transfers) ++num_transfers[transfer.blob];
  std::map<std::string, const Transfer*> sums;
  for (const Transfer& transfer : request.transfers) {
    if (transfer.kind != Transfer::Kind::kAddOut || num_transfers[transfer.blob] > 1) continue;
    if (OnlyOperatorAdds(request, graph, transfer)) sums[transfer.blob] = &transfer;
  }
  return sums;
}

}  // namespace stepnet
