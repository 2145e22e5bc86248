#include "stepnet/compiler/dependencies.h"

#include <algorithm>
#include <utility>

#include "stepnet/compiler/conflicts.h"
#include "stepnet/compiler/transitive_reduction.h"

namespace stepnet {
namespace {

class AccessCollector {
 public:
  // Collects, with `of_one_step`, what each instruction touches in one step, also where it runs for many at once.
  AccessCollector(const StepPlan& plan, bool of_one_step)
      : plan_(plan),
        of_one_step_(of_one_step),
        has_effects_(std::ranges::any_of(plan.instructions, &Instruction::has_side_effects)) {}

  // The accesses of instructions [begin, end).
  std::vector<std::vector<MemoryAccess>> Run(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const Instruction& instruction = plan_.instructions[i];
      accesses_.emplace_back();
      for (const InstructionOperand& input : instruction.inputs) Add(instruction, input, /*writes=*/false);
      for (const InstructionOperand& output : instruction.outputs) Add(instruction, output, /*writes=*/true);
      // A dynamic operator remembers the shapes of its last run, so two steps of it are never under way at once.
      if (instruction.by_blobs) AddOwn(Whole(Own(i)));
      const bool reaches_out = instruction.by_blobs && instruction.call != nullptr &&
                               instruction.call->schema().TakesBlobs(plan_.target->device);
      if (reaches_out || instruction.has_side_effects) {
        AddOwn(Whole(Own(-1)));
      } else if (has_effects_ && MayFail(instruction)) {
        // What lasts waits for all that comes before it and may fail, and is there when what comes behind it fails.
        AddOwn({.memory = Own(-1), .writes = false, .bytes = 1});
      }
    }
    return std::move(accesses_);
  }

 private:
  // Pieces of memory: bases, dynamic lists, then one for each instruction and one for the world outside.
  int Own(int i) const { return plan_.num_bases + static_cast<int>(plan_.dynamic_lists.size()) + 1 + i; }
  static bool MayFail(const Instruction& instruction) { return instruction.checks_values || instruction.by_blobs; }
  static MemoryAccess Whole(int memory) { return {.memory = memory, .writes = true, .bytes = 1}; }
  void AddOwn(MemoryAccess access) { accesses_.back().push_back(access); }

  void Add(const Instruction& instruction, const InstructionOperand& operand, bool writes) {
    if (operand.shape_alone) return;
    const Slot& slot = plan_.slots[operand.slot];
    const bool has_many_rows = operand.has_rows && !of_one_step_;
    if (instruction.steps_at_once == kAllSteps && has_many_rows) {  // how many only a run knows
      AddOwn({.memory = slot.base, .writes = writes, .begin = 0, .stride = 0, .bytes = kEver, .slot = operand.slot});
      return;
    }
    const std::int64_t steps = has_many_rows ? instruction.steps_at_once : 1;
    const std::int64_t direction = plan_.backward ? -steps : steps;
    if (slot.storage_class == StorageClass::kDynamic) {
      AddOwn({.memory = plan_.num_bases + slot.base,
              .writes = writes,
              .begin = 0,
              .stride = plan_.dynamic_lists[slot.base] ? direction : 0,
              .bytes = 1,
              .slot = operand.slot});
      return;
    }
    // A stage has gone through a block before it comes to the next, where other rows are the same memory.
    const bool stays_in_block = slot.storage_class == StorageClass::kBlock && !of_one_step_;
    AddOwn({.memory = slot.base,
            .writes = writes,
            .begin = slot.BeginInBase(),
            .stride = slot.row_bytes * direction,
            .bytes = operand.info.size_bytes() * steps,
            .ring = stays_in_block ? 0 : slot.ring_rows * slot.row_bytes,
            .slot = operand.slot});
  }

  const StepPlan& plan_;
  const bool of_one_step_;
  const bool has_effects_;  // the plan has instructions with side effects
  std::vector<std::vector<MemoryAccess>> accesses_;
};

// What is touched in `steps` steps, as one access; all of a ring of fewer rows, whichever those steps use, and of one
// whose rows these may begin in the midst of.
MemoryAccess OverSteps(MemoryAccess access, std::int64_t steps) {
  if (access.ring != 0 && (access.ring < steps * std::abs(access.stride) || access.begin != 0)) {
    access.begin = access.stride = 0;
    access.bytes = std::exchange(access.ring, 0);
    return access;
  }
  const std::int64_t way = (steps - 1) * access.stride;
  access.begin += std::min<std::int64_t>(way, 0);
  access.bytes += std::abs(way);
  access.stride *= steps;
  return access;
}

}  // namespace

const char* DependencyKindName(DependencyKind kind) {
  switch (kind) {
    case DependencyKind::kReadAfterWrite: return "read after write";
    case DependencyKind::kWriteAfterRead: return "write after read";
    case DependencyKind::kWriteAfterWrite: return "write after write";
  }
  return "unknown";
}

std::vector<std::vector<MemoryAccess>> AccessesOf(const StepPlan& plan) {
  return AccessCollector(plan, /*of_one_step=*/false).Run(0, static_cast<int>(plan.instructions.size()));
}

std::vector<std::vector<MemoryAccess>> AccessesOfOneStep(const StepPlan& plan) {
  return AccessCollector(plan, /*of_one_step=*/true).Run(0, static_cast<int>(plan.instructions.size()));
}

Dependencies FindDependencies(const std::vector<std::vector<MemoryAccess>>& accesses) {
  Dependencies result{.num_instructions = static_cast<int>(accesses.size()), .edges = FindConflicts(accesses)};
  RemoveImplied(result.num_instructions, &result.edges);
  for (const Dependency& edge : result.edges) result.max_delta = std::max(result.max_delta, edge.delta);
  return result;
}

Dependencies FindDependencies(const StepPlan& plan, const Stage& stage) {
  Dependencies dependencies =
      FindDependencies(AccessCollector(plan, /*of_one_step=*/false).Run(stage.begin, stage.end));
  dependencies.num_instructions = static_cast<int>(plan.instructions.size());
  for (Dependency& edge : dependencies.edges) {
    edge.from += stage.begin;
    edge.to += stage.begin;
  }
  if (stage.steps_at_once == kAllSteps) {
    std::erase_if(dependencies.edges, [](const Dependency& edge) { return edge.delta > 0; });
    dependencies.max_delta = 0;
  }
  return dependencies;
}

Dependencies FindChunkDependencies(const StepPlan& plan) {
  const std::vector<std::vector<MemoryAccess>> of_one_step = AccessesOfOneStep(plan);
  std::vector<std::vector<MemoryAccess>> accesses(plan.stages.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.steps_at_once == kAllSteps) continue;
    for (int i = stage.begin; i < stage.end; ++i) {
      for (const MemoryAccess& access : of_one_step[i]) accesses[s].push_back(OverSteps(access, plan.chunk_steps));
    }
  }
  return FindDependencies(accesses);
}

}  // namespace stepnet
