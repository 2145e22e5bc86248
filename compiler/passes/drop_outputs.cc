#include <algorithm>
#include <functional>
#include <iterator>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Whether the kernel asks OpRun::Wants about each output. Those that run with blobs have blobs for all.
bool AsksWhatIsWanted(const StepDraft& draft, const StepNode& node) {
  if (draft.RunsWithBlobs(node) || !node.init.schema().rows) return false;
  std::vector<TensorInfo> inputs;
  for (const int input : node.inputs) inputs.push_back(draft.graph.values[input].info);
  const std::optional<RowOperands> rule = node.init.schema().rows(ShapeQuery(node.init, inputs));
  return rule && !rule->outputs.empty() && rule->outputs.size() < node.outputs.size();
}

// The blobs of the step that are seen from outside, whoever sees them.
std::set<std::string> BlobsSeenOutside(const StepDraft& draft) {
  const StepPlanRequest& request = draft.request;
  std::set<std::string> blobs;
  for (const BoundBlob& bound : request.bound) blobs.insert(bound.slot.blob);
  for (const Transfer& transfer : request.transfers) blobs.insert(transfer.blob);
  for (const auto& [blob, list] : request.bound_dynamic) blobs.insert(blob);
  for (const auto& [blob, value] : draft.graph.last) {
    if (request.keep && request.keep(blob)) blobs.insert(blob);
  }
  return blobs;
}

}  // namespace

void DropOutputs(StepDraft* draft) {
  const StepGraph& graph = draft->graph;
  std::set<int> read;
  for (const StepNode& node : graph.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  const std::set<std::string> seen = BlobsSeenOutside(*draft);
  const auto is_needed = [&](int v) { return read.contains(v) || seen.contains(graph.values[v].blob); };
  for (const StepNode& node : graph.nodes) {
    if (std::ranges::all_of(node.outputs, is_needed) || std::ranges::none_of(node.outputs, is_needed)) continue;
    if (!AsksWhatIsWanted(*draft, node)) continue;
    std::set<int>& unneeded = draft->unneeded;
    std::ranges::copy_if(node.outputs, std::inserter(unneeded, unneeded.end()), std::not_fn(is_needed));
  }
}

}  // namespace stepnet
