#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/floating.h"

namespace stepnet {
namespace {

bool IsWeight(const StepGraph& graph, const std::set<int>& written, int value) {
  const Home& home = graph.homes[graph.values[value].home];
  const bool is_of_caller = home.kind == Home::Kind::kOutside && home.slot.storage_class == StorageClass::kShared &&
                            !written.contains(home.slot.base);
  return is_of_caller || home.kind == Home::Kind::kOnce;
}

// How the kernel of a call packs weights that are the same in all steps; null: there are none.
const Packing* PackingOf(const StepGraph& graph, const StepNode& node, const std::set<int>& written) {
  if (!node.IsOneOperator() || node.by_blobs) return nullptr;
  const Kernel* kernel = node.call->schema().FindKernel(graph.target->device);
  if (kernel == nullptr || !kernel->packing) return nullptr;
  const std::span<const int> weights = PackedInputs(node, *kernel->packing);
  const auto is_weight = [&](int value) { return IsWeight(graph, written, value); };
  return !weights.empty() && std::ranges::all_of(weights, is_weight) ? &*kernel->packing : nullptr;
}

// What runs for many steps at once reads weights once for all of them.
bool ReadsWeightsOften(const Stage& stage, const Target& target) {
  return stage.steps_at_once != kAllSteps && stage.steps_at_once <= target.max_chunk_to_pack;
}

// Several small weights are one in panels, and else a product each, which takes longer than to pack them.
bool AreSmallParts(const StepGraph& graph, const Stage& stage, std::span<const int> weights) {
  std::int64_t bytes = 0;
  for (const int weight : weights) bytes += ComputedBytes(graph.values[weight].info);
  return stage.steps_at_once != kAllSteps && weights.size() > 1 && bytes <= graph.target->max_bytes_of_parts_to_pack;
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

// Lets the node read its weights in so many bytes of another form; returns what makes them.
StepNode Pack(std::span<const int> inputs, std::int64_t bytes, StepNode* node, StepGraph* graph) {
  std::vector<std::string> names;
  for (const int input : inputs) names.push_back(graph->values[input].blob);
  graph->homes.push_back({.kind = Home::Kind::kOnce});
  node->packed = graph->AddValue({.blob = Join(names, "|") + " packed",
                                  .outside = true,
                                  .info = {.dtype = DType::kUInt8, .shape = Shape({bytes})},
                                  .home = static_cast<int>(graph->homes.size()) - 1});
  return {.kind = StepNode::Kind::kPack,
          .call = node->call,
          .def = node->def,
          .op_index = node->op_index,
          .inputs = {inputs.begin(), inputs.end()},
          .outputs = {node->packed}};
}

class WeightPacker {
 public:
  explicit WeightPacker(StepGraph* graph) : graph_(*graph), written_(WrittenBases(*graph)) {}

  bool Run() {
    std::vector<Stage> stages = graph_.stages;
    if (stages.empty()) stages = {{.begin = 0, .end = static_cast<int>(graph_.nodes.size())}};
    for (const Stage& stage : stages) {
      for (int n = stage.begin; n < stage.end; ++n) PackFor(n, stage);
    }
    if (packs_.empty()) return false;
    graph_.AddOnce(std::move(packs_), graph_.target->min_steps_to_pack);
    return true;
  }

 private:
  // What was packed for a node, by which it reads it.
  struct Packed {
    int node = 0;
    std::vector<TensorInfo> inputs, outputs;
  };

  void PackFor(int n, const Stage& stage) {
    StepNode& node = graph_.nodes[n];
    const Packing* packing = PackingOf(graph_, node, written_);
    if (packing == nullptr) return;
    const std::span<const int> weights = PackedInputs(node, *packing);
    if (!ReadsWeightsOften(stage, *graph_.target) && !AreSmallParts(graph_, stage, weights)) return;
    Packed packed{n, InputsOf(graph_, node, stage.steps_at_once), OutputsOf(graph_, node)};
    const std::int64_t bytes = packing->bytes(ShapeQuery(*node.call, packed.inputs), packed.outputs);
    if (bytes <= 0) return;
    std::vector<Packed>& of_weights = packed_[{node.call->type(), {weights.begin(), weights.end()}}];
    const auto equal = std::ranges::find_if(of_weights, [&](const Packed& other) {
      return other.inputs == packed.inputs && other.outputs == packed.outputs &&
             HaveSameArguments(graph_.nodes[other.node], node);
    });
    if (equal != of_weights.end()) {
      node.packed = graph_.nodes[equal->node].packed;
      return;
    }
    packs_.push_back(Pack(weights, bytes, &node, &graph_));
    of_weights.push_back(std::move(packed));
  }

  StepGraph& graph_;
  const std::set<int> written_;                                                     // bases
  std::map<std::pair<std::string, std::vector<int>>, std::vector<Packed>> packed_;  // by type and weights
  std::vector<StepNode> packs_;
};

// Operators of loops read weights in the form that their kernel likes best (Kernel::packing), made once before the
// first step where nothing writes to them; products of one shape read one. Rounds otherwise: kernels of another form
// add up in another order.
bool PackWeights(StepGraph* graph) { return WeightPacker(graph).Run(); }

const PassRegistration registration({.name = "pack_weights", .place = 190, .opt_level = 2, .run = PackWeights});

}  // namespace
}  // namespace stepnet
