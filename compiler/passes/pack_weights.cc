#include <set>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"

namespace stepnet {
namespace {

// How the kernel of a call packs a weight that is the same in all steps; null: there is none.
const Packing* PackingOf(const StepGraph& graph, const StepNode& node, const std::set<int>& written) {
  if (!node.IsOneOperator() || node.by_blobs) return nullptr;
  const Kernel* kernel = node.call->schema().FindKernel(graph.target->device);
  if (kernel == nullptr || !kernel->packing) return nullptr;
  const Home& home = graph.homes[graph.values[node.inputs[kernel->packing->input]].home];
  const bool is_weight = home.kind == Home::Kind::kOutside && home.slot.storage_class == StorageClass::kShared &&
                         !written.contains(home.slot.base);
  return is_weight ? &*kernel->packing : nullptr;
}

// What runs for many steps at once reads weights once for all of them.
bool ReadsWeightsOften(const Instruction& instruction, const Target& target) {
  return instruction.steps_at_once != kAllSteps && instruction.steps_at_once <= target.max_chunk_to_pack;
}

}  // namespace

bool PackWeights(StepGraph* graph) {
  const std::set<int> written = WrittenBases(*graph);
  std::vector<std::pair<StepNode*, const Packing*>> packable;
  for (StepNode& node : graph->nodes) {
    if (const Packing* packing = PackingOf(*graph, node, written)) packable.emplace_back(&node, packing);
  }
  if (packable.empty()) return false;
  const StepPlan draft = EmitPlan(*graph, {.is_draft = true});
  std::vector<StepNode> packs;
  for (const auto& [user, packing] : packable) {
    StepNode& node = *user;
    const Instruction& instruction = draft.instructions[user - graph->nodes.data()];
    if (!ReadsWeightsOften(instruction, *graph->target)) continue;
    const std::int64_t bytes = packing->bytes(ShapeQuery(*node.call, InfosOf(instruction, instruction.inputs)));
    if (bytes == 0) continue;
    const int input = node.inputs[packing->input];
    graph->homes.push_back({.kind = Home::Kind::kOnce});
    node.packed = graph->AddValue({.blob = graph->values[input].blob + " packed",
                                   .outside = true,
                                   .info = {.dtype = DType::kUInt8, .shape = Shape({bytes})},
                                   .home = static_cast<int>(graph->homes.size()) - 1});
    packs.push_back({.kind = StepNode::Kind::kPack,
                     .call = node.call,
                     .def = node.def,
                     .op_index = node.op_index,
                     .inputs = {input},
                     .outputs = {node.packed}});
  }
  if (packs.empty()) return false;
  const auto count = static_cast<int>(packs.size());
  if (graph->stages.empty()) graph->stages = {{.begin = 0, .end = static_cast<int>(graph->nodes.size())}};
  for (Stage& stage : graph->stages) {
    stage.begin += count;
    stage.end += count;
  }
  graph->stages.insert(
      graph->stages.begin(),
      {.begin = 0, .end = count, .steps_at_once = kAllSteps, .min_steps = graph->target->min_steps_to_pack});
  graph->nodes.insert(graph->nodes.begin(), packs.begin(), packs.end());
  graph->FindProducers();
  return true;
}

}  // namespace stepnet
