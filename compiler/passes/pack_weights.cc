#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// How the kernel of a call packs a weight that is the same in all steps; null: there is none.
const Packing* PackingOf(const StepGraph& graph, const StepNode& node, const std::set<int>& written) {
  if (!node.IsOneOperator() || node.by_blobs) return nullptr;
  const Kernel* kernel = node.call->schema().FindKernel(graph.target->device);
  if (kernel == nullptr || !kernel->packing) return nullptr;
  const Home& home = graph.homes[graph.values[node.inputs[kernel->packing->input]].home];
  const bool is_of_caller = home.kind == Home::Kind::kOutside && home.slot.storage_class == StorageClass::kShared &&
                            !written.contains(home.slot.base);
  const bool is_weight = is_of_caller || home.kind == Home::Kind::kOnce;
  return is_weight ? &*kernel->packing : nullptr;
}

// What runs for many steps at once reads weights once for all of them.
bool ReadsWeightsOften(const Stage& stage, const Target& target) {
  return stage.steps_at_once != kAllSteps && stage.steps_at_once <= target.max_chunk_to_pack;
}

// What the kernel reads in a stage that takes so many steps at once.
std::vector<TensorInfo> InputsOf(const StepGraph& graph, const StepNode& node, std::int64_t steps_at_once) {
  std::vector<TensorInfo> inputs = graph.InfosOf(node.inputs);
  if (steps_at_once == 1 || !node.call->schema().rows) return inputs;
  const std::optional<RowOperands> rule = node.call->schema().rows(ShapeQuery(*node.call, inputs));
  if (!rule) return inputs;
  for (const int i : rule->inputs) {
    inputs[i].shape = ShapeOfSteps({.info = inputs[i], .has_rows = true}, steps_at_once);
  }
  return inputs;
}

// What the kernel gives; outputs that nobody wants have no elements.
std::vector<TensorInfo> OutputsOf(const StepGraph& graph, const StepNode& node) {
  std::vector<TensorInfo> outputs;
  for (const int value : node.outputs) {
    outputs.push_back(value == kNoValue ? TensorInfo{.shape = Shape({0})} : graph.values[value].info);
  }
  return outputs;
}

// Lets the node read its weight in so many bytes of another form; returns what makes them.
StepNode Pack(int input, std::int64_t bytes, StepNode* node, StepGraph* graph) {
  graph->homes.push_back({.kind = Home::Kind::kOnce});
  node->packed = graph->AddValue({.blob = graph->values[input].blob + " packed",
                                  .outside = true,
                                  .info = {.dtype = DType::kUInt8, .shape = Shape({bytes})},
                                  .home = static_cast<int>(graph->homes.size()) - 1});
  return {.kind = StepNode::Kind::kPack,
          .call = node->call,
          .def = node->def,
          .op_index = node->op_index,
          .inputs = {input},
          .outputs = {node->packed}};
}

// Operators of loops read weights in the form that their kernel likes best (Kernel::packing), made once before the
// first step where nothing writes to them. Rounds otherwise: kernels of another form add up in another order.
bool PackWeights(StepGraph* graph) {
  const std::set<int> written = WrittenBases(*graph);
  std::vector<Stage> stages = graph->stages;
  if (stages.empty()) stages = {{.begin = 0, .end = static_cast<int>(graph->nodes.size())}};
  std::vector<StepNode> packs;
  for (const Stage& stage : stages) {
    for (int n = stage.begin; n < stage.end && ReadsWeightsOften(stage, *graph->target); ++n) {
      StepNode& node = graph->nodes[n];
      const Packing* packing = PackingOf(*graph, node, written);
      if (packing == nullptr) continue;
      const std::vector<TensorInfo> inputs = InputsOf(*graph, node, stage.steps_at_once);
      const std::int64_t bytes = packing->bytes(ShapeQuery(*node.call, inputs), OutputsOf(*graph, node));
      if (bytes > 0) packs.push_back(Pack(node.inputs[packing->input], bytes, &node, graph));
    }
  }
  if (packs.empty()) return false;
  graph->AddOnce(std::move(packs), graph->target->min_steps_to_pack);
  return true;
}

const PassRegistration registration({.name = "pack_weights", .place = 190, .opt_level = 2, .run = PackWeights});

}  // namespace
}  // namespace stepnet
