#include "stepnet/report/explained_storage.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace stepnet {
namespace {

// Slots that instructions read the shape of, and no element.
std::vector<bool> ShapesAlone(const StepPlan& plan) {
  std::vector<bool> is_named(plan.slots.size(), false), is_used = is_named;
  for (const Instruction& instruction : plan.instructions) {
    for (const InstructionOperand& input : instruction.inputs)
      (input.shape_alone ? is_named : is_used)[input.slot] = true;
    for (const InstructionOperand& output : instruction.outputs) is_used[output.slot] = true;
  }
  for (size_t s = 0; s < is_named.size(); ++s) is_named[s] = is_named[s] && !is_used[s];
  return is_named;
}

// The names of what lies in each slot, in their order: of temporaries others take the place of the first one.
std::vector<std::vector<std::string>> NamesOfSlots(const StepGraph& graph, const StepPlan& plan) {
  std::vector<std::vector<std::string>> names;
  for (const Slot& slot : plan.slots) names.push_back({slot.blob});
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    for (const InstructionOperand& output : plan.instructions[i].outputs) {
      const StepValue& value = graph.values[graph.nodes[i].outputs[output.position]];
      std::vector<std::string>& of_slot = names[output.slot];
      if (graph.homes[value.home].kind != Home::Kind::kTemporary || std::ranges::count(of_slot, value.blob) > 0)
        continue;
      of_slot.push_back(value.blob);
    }
  }
  return names;
}

std::map<StorageClass, const char*> Meanings(bool backward) {
  return {{StorageClass::kLocal, "in registers and the first cache alone"},
          {StorageClass::kRing, "a few rows that steps use in turn"},
          {StorageClass::kBlock, "a row for each step of a block, for another stage"},
          {StorageClass::kStacked, "a row for each step, for another stage or the gradient"},
          {StorageClass::kLinked, backward ? "rows of sequences, states, outputs and their gradients, and of what the "
                                             "forward steps kept, where they are"
                                           : "rows of sequences, states and outputs, at no cost"},
          {StorageClass::kShared, "the same in all steps"},
          {StorageClass::kDynamic, "blobs, of shapes that only a run tells"}};
}

}  // namespace

std::vector<ExplainedStorage> StorageOf(const StepGraph& graph, const StepPlan& plan,
                                        std::optional<std::int64_t> num_steps) {
  std::vector<ExplainedStorage> all;
  const std::vector<bool> shapes_alone = ShapesAlone(plan);
  const std::vector<std::vector<std::string>> names = NamesOfSlots(graph, plan);
  std::set<int> left_out;  // bases
  for (const ArenaPiece& piece : plan.arena) {
    if (num_steps && *num_steps < piece.min_steps) left_out.insert(piece.base);
  }
  for (const auto& [storage_class, meaning] : Meanings(plan.backward)) {
    ExplainedStorage storage{.kind = StorageClassName(storage_class), .meaning = meaning};
    storage.has_rows = storage_class != StorageClass::kShared;
    std::set<std::pair<int, std::int64_t>> rows;  // that are counted
    for (size_t s = 0; s < plan.slots.size(); ++s) {
      const Slot& slot = plan.slots[s];
      if (slot.storage_class != storage_class || shapes_alone[s] || left_out.contains(slot.base)) continue;
      if (std::ranges::count(storage.values, names[s]) == 0) storage.values.push_back(names[s]);
      if (rows.emplace(slot.base, slot.offset).second) storage.bytes += slot.bytes;
    }
    if (!storage.values.empty()) all.push_back(std::move(storage));
  }
  ExplainedStorage shapes{.kind = "shape", .meaning = "nothing else of them is read"};
  for (size_t s = 0; s < plan.slots.size(); ++s) {
    if (shapes_alone[s]) shapes.values.push_back(names[s]);
  }
  if (!shapes.values.empty()) all.push_back(std::move(shapes));
  return all;
}

}  // namespace stepnet
