#include "stepnet/compiler/find_stages.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>

#include "stepnet/compiler/components.h"
#include "stepnet/compiler/conflicts.h"
#include "stepnet/compiler/dependencies.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/machine_limits.h"

namespace stepnet {
namespace {

// What each instruction touches.
using Accesses = std::vector<std::vector<MemoryAccess>>;

// Sums over the steps to which instructions do nothing but add are the same in any order of the terms, so they order
// nothing. Which outputs are terms `is_term` says.
Accesses WithoutSums(const StepPlan& plan, Accesses accesses,
                     const std::function<bool(const InstructionOperand&)>& is_term) {
  // Who reads what is empty comes behind who gives it all the same.
  for (std::vector<MemoryAccess>& of_instruction : accesses) {
    for (MemoryAccess& access : of_instruction) access.bytes = std::max<std::int64_t>(access.bytes, 1);
  }
  const auto adds = [&](size_t i, const MemoryAccess& access) {
    return std::ranges::any_of(plan.instructions[i].outputs, [&](const InstructionOperand& output) {
      return output.slot == access.slot && !output.has_rows && is_term(output);
    });
  };
  std::set<int> otherwise_used;  // memory
  for (size_t i = 0; i < accesses.size(); ++i) {
    for (const MemoryAccess& access : accesses[i]) {
      if (!adds(i, access)) otherwise_used.insert(access.memory);
    }
  }
  for (std::vector<MemoryAccess>& of_instruction : accesses) {
    std::erase_if(of_instruction, [&](const MemoryAccess& access) { return !otherwise_used.contains(access.memory); });
  }
  return accesses;
}

// Who reads of a value nothing but its shape waits for no memory, but comes behind who gives the value.
void AddReadsOfShapes(const StepPlan& plan, std::vector<Dependency>* edges) {
  std::map<int, int> givers;  // by slot
  for (int i = 0; i < static_cast<int>(plan.instructions.size()); ++i) {
    for (const InstructionOperand& input : plan.instructions[i].inputs) {
      const auto giver = input.shape_alone ? givers.find(input.slot) : givers.end();
      if (giver != givers.end()) edges->push_back({.from = giver->second, .to = i});
    }
    for (const InstructionOperand& output : plan.instructions[i].outputs) givers[output.slot] = i;
  }
}

// Counts the rows that the instruction gives for each step; 0 where it gives sums over the steps.
std::int64_t RowsOf(const Instruction& instruction) {
  std::int64_t rows = 0;
  for (const InstructionOperand& output : instruction.outputs) {
    const Shape& shape = output.info.shape;
    if (output.has_rows && shape[-1] > 0) rows = std::max(rows, shape.size() / shape[-1]);
  }
  return rows;
}

// The largest operand that all steps share, or all matrices among inputs or outputs, which may be parts of one
// (FCOfParts); and the largest operand of which each step has its own.
struct OperandBytes {
  std::int64_t shared = 0, own = 0;

  explicit OperandBytes(const Instruction& instruction) {
    for (const std::vector<InstructionOperand>* operands : {&instruction.inputs, &instruction.outputs}) {
      std::int64_t matrices = 0;
      for (const InstructionOperand& operand : *operands) {
        std::int64_t& max_bytes = operand.has_rows ? own : shared;
        max_bytes = std::max(max_bytes, ComputedBytes(operand.info));
        if (!operand.has_rows && operand.info.shape.rank() > 1) matrices += ComputedBytes(operand.info);
      }
      shared = std::max(shared, matrices);
    }
  }
};

// What all steps share is large beside what each has of its own, which many steps at once take out of the caches; or
// that is so little that calls count.
bool GainsOverTime(const Instruction& instruction, const Target& target) {
  const OperandBytes bytes(instruction);
  return target.takes_all_over_time || bytes.shared >= target.min_shared_ratio * bytes.own ||
         (bytes.shared > bytes.own && bytes.own <= target.small_step_bytes);
}

// What copies, or is pointwise and repeats an input, as the gain of a norm, is a part of a region in a loop: over time
// it would be a call and an array more.
bool IsPartOfRegions(const Instruction& instruction) {
  if (instruction.only_copies) return true;
  if (instruction.call == nullptr || !IsElementwise(instruction.call->schema())) return false;
  std::int64_t elements = 0;
  for (const InstructionOperand& output : instruction.outputs) elements = std::max(elements, output.info.shape.size());
  return std::ranges::any_of(instruction.inputs, [&](const InstructionOperand& input) {
    return !input.has_rows || input.info.shape.size() < elements;
  });
}

// Where the second cache is that large, what else a loop reads again stays in it when such weights are out of the loop.
bool LeavesRoomOverTime(std::int64_t rows, const Target& target) {
  return SecondCacheBytes(target) >= target.large_second_cache_bytes &&
         rows * target.min_chunk_steps <= target.max_rows_to_pack;
}

// One step reads packed weights as fast as many at once would, and what it gives stays in the cache. Where memory is
// short, a loop's products alone are computed again for the gradient (pass recompute), so they stay where it is kept
// for.
bool IsAsFastInLoop(const Instruction& instruction, const StepPlan& plan) {
  const Target& target = *plan.target;
  const std::int64_t rows = RowsOf(instruction);
  const bool is_as_fast = !target.takes_all_over_time && instruction.can_pack &&
                          target.IsAsFastInLoop(rows, OperandBytes(instruction).shared);
  return is_as_fast && (!LeavesRoomOverTime(rows, target) || std::ranges::any_of(plan.arena, &ArenaPiece::IsKept));
}

bool MultipliesMatrices(const Instruction& instruction) {
  if (instruction.call == nullptr || instruction.by_blobs || !instruction.call->schema().expansion) return false;
  const std::vector<TensorInfo> inputs = InfosOf(instruction, instruction.inputs);
  return !Expansion(ShapeQuery(*instruction.call, inputs)).products().empty();
}

std::int64_t ChunkSteps(const StepPlan& plan, const std::vector<StageDraft>& stages) {
  const Target& target = *plan.target;
  // Going back, products give the few columns of an input and not those of all gates: a GPU has enough of them to
  // compute with twice as many rows.
  const std::int64_t chunk_rows = target.chunk_rows * (target.takes_all_over_time && plan.backward ? 2 : 1);
  std::int64_t rows = 1, bytes = 1;  // of one step
  for (const StageDraft& stage : stages) {
    if (stage.steps_at_once == 1) continue;
    for (const int i : stage.instructions) {
      const Instruction& instruction = plan.instructions[i];
      const std::int64_t own = RowsOf(instruction);
      if (!target.takes_all_over_time || MultipliesMatrices(instruction)) {
        rows = std::max(rows, own);
        continue;
      }
      rows = std::max(rows, std::min(own, chunk_rows / target.min_steps_of_rows));
      for (const InstructionOperand& output : instruction.outputs)
        bytes += output.has_rows ? ComputedBytes(output.info) : 0;
    }
  }
  const std::int64_t steps = std::clamp(std::min(chunk_rows / rows, target.max_chunk_bytes / bytes),
                                        target.min_chunk_steps, target.max_chunk_steps);
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(steps)));  // blocks have whole chunks
}

// kOpensLoop: in the loop of what comes behind it. kEither: in a loop or over time, as what is around it asks.
enum class Kind { kLoop, kOverTime, kOpensLoop, kEither, kSum };

// Instructions that wait for each other, around a loop, or a single one.
struct Component {
  std::vector<int> instructions;
  Kind kind = Kind::kEither;
  std::set<int> before = {};  // components
  std::set<int> after = {};
  int stage = -1;             // odd: a loop; even: takes chunks of steps; the last one: all steps
  int loop = 0;               // its number, from 1 on, of those in a stage that need nothing of each other
  int first = 0;              // stage that it can be in
  bool follows_rows = false;  // something over time comes before it, without a loop between
};

class StageFinder {
 public:
  explicit StageFinder(const StepPlan& plan)
      : plan_(plan), num_instructions_(static_cast<int>(plan.instructions.size())) {}

  std::vector<StageDraft> Run() {
    FindComponents();
    FindOrder();
    PlaceThoseOfOneKind();
    PlaceOthers();
    TakeLoopsApart();
    std::map<std::pair<int, int>, StageDraft> stages;
    for (const int c : order_) {
      const Component& component = components_[c];
      StageDraft& stage = stages[{component.stage, component.loop}];
      if (component.stage % 2 == 0) stage.steps_at_once = kAllSteps;
      stage.instructions.insert(stage.instructions.end(), component.instructions.begin(), component.instructions.end());
    }
    std::vector<StageDraft> result;
    for (auto& [number, stage] : stages) {
      if (stage.steps_at_once == 1) std::ranges::sort(stage.instructions);
      result.push_back(std::move(stage));
    }
    const std::int64_t chunk = ChunkSteps(plan_, result);
    for (StageDraft& stage : result) {
      const bool is_last = &stage == &result.back() && stages.contains({kLast, 0});
      if (stage.steps_at_once == kAllSteps && !is_last) stage.steps_at_once = chunk;
    }
    return result;
  }

 private:
  void FindComponents() {
    // Dependencies that others imply are among them.
    std::vector<Dependency> edges = FindConflicts(WithoutSums(plan_, AccessesOf(plan_), &InstructionOperand::added));
    AddReadsOfShapes(plan_, &edges);
    std::vector<std::vector<int>> forward(num_instructions_);
    std::vector<bool> waits_for_itself(num_instructions_, false);
    for (const Dependency& edge : edges) {
      forward[edge.from].push_back(edge.to);
      if (edge.from == edge.to) waits_for_itself[edge.from] = true;
    }
    std::vector<int> component_of(num_instructions_);
    for (std::vector<int>& instructions : StronglyConnectedComponents(forward)) {
      for (const int i : instructions) component_of[i] = static_cast<int>(components_.size());
      Component& component = components_.emplace_back(Component{.instructions = std::move(instructions)});
      component.kind = KindOf(component, waits_for_itself);
    }
    for (const Dependency& edge : edges) {
      const int from = component_of[edge.from], to = component_of[edge.to];
      if (from == to) continue;
      components_[from].after.insert(to);
      components_[to].before.insert(from);
    }
  }

  Kind KindOf(const Component& component, const std::vector<bool>& waits_for_itself) const {
    const int first = component.instructions.front();
    const Instruction& instruction = plan_.instructions[first];
    if (component.instructions.size() > 1 || waits_for_itself[first] || !instruction.can_take_steps) return Kind::kLoop;
    if (IsAsFastInLoop(instruction, plan_)) return Kind::kOpensLoop;
    // A thread has what a region gives in its first cache.
    if (IsPartOfRegions(instruction)) return plan_.target->takes_all_over_time ? Kind::kEither : Kind::kLoop;
    if (!GainsOverTime(instruction, *plan_.target)) return Kind::kEither;
    const bool has_rows =
        std::ranges::any_of(instruction.outputs, [](const InstructionOperand& output) { return output.has_rows; });
    return has_rows ? Kind::kOverTime : Kind::kSum;
  }

  // What waits comes later; otherwise as in the program.
  void FindOrder() {
    std::vector<size_t> waits_for;
    std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
    for (size_t c = 0; c < components_.size(); ++c) {
      waits_for.push_back(components_[c].before.size());
      if (waits_for[c] == 0) ready.emplace(components_[c].instructions.front(), static_cast<int>(c));
    }
    while (!ready.empty()) {
      const int c = ready.top().second;
      ready.pop();
      order_.push_back(c);
      for (const int next : components_[c].after) {
        if (--waits_for[next] == 0) ready.emplace(components_[next].instructions.front(), next);
      }
    }
  }

  // Puts each into the first stage of its kind that what it waits for allows.
  void PlaceThoseOfOneKind() {
    for (const int c : order_) {
      Component& component = components_[c];
      for (const int p : component.before) {
        const Component& before = components_[p];
        component.first = std::max(component.first, before.kind == Kind::kEither ? before.first : before.stage);
      }
      component.follows_rows = std::ranges::any_of(component.before, [&](int p) {
        const Component& before = components_[p];
        const bool is_rows = before.kind == Kind::kOverTime || (before.kind == Kind::kEither && before.follows_rows);
        return is_rows && component.first % 2 == 0;
      });
      if (component.kind == Kind::kEither) continue;
      if (component.kind == Kind::kSum && component.after.empty()) {  // otherwise something overwrites what it reads
        component.stage = kLast;
        continue;
      }
      const bool is_loop = component.first % 2 != 0;
      if (component.kind == Kind::kOpensLoop) {
        component.stage = component.first + (is_loop ? 2 : 1);
      } else {
        component.stage = component.first + (is_loop == (component.kind == Kind::kLoop) ? 0 : 1);
      }
    }
  }

  // Cheap instructions go over time only between those that do; in a loop their values need not leave the cache.
  void PlaceOthers() {
    for (size_t k = order_.size(); k-- > 0;) {
      Component& component = components_[order_[k]];
      if (component.kind != Kind::kEither) continue;
      int last = kLast;  // sums wait for others, others for none of them
      for (const int next : component.after) last = std::min(last, components_[next].stage);
      const int first = component.first;
      if (first % 2 != 0 || first == last) {
        component.stage = first;
      } else if (last == kLast) {
        component.stage = component.follows_rows ? first : first + 1;
      } else {
        component.stage = last % 2 != 0 ? last : last - 1;
      }
    }
  }

  // Loops that need nothing of each other, as those of two directions, overlap, each with its weights in the cache,
  // where there are chunks that they can be at.
  void TakeLoopsApart() {
    if (std::ranges::none_of(components_, [](const Component& c) { return c.stage % 2 == 0 && c.stage != kLast; }))
      return;
    int num_loops = 0;
    for (const int c : order_) {
      if (components_[c].stage % 2 == 0 || components_[c].loop != 0) continue;
      std::vector<int> connected = {c};
      components_[c].loop = ++num_loops;
      while (!connected.empty()) {
        const Component& at = components_[connected.back()];
        connected.pop_back();
        for (const std::set<int>* others : {&at.before, &at.after}) {
          for (const int other : *others) {
            if (components_[other].stage != at.stage || components_[other].loop != 0) continue;
            components_[other].loop = at.loop;
            connected.push_back(other);
          }
        }
      }
    }
  }

  static constexpr int kLast = std::numeric_limits<int>::max() - 1;

  const StepPlan& plan_;
  const int num_instructions_;
  std::vector<Component> components_;
  std::vector<int> order_;
};

// What orders instructions of different stages, in one step. Not temporaries: those that a step does not keep are used
// by one stage, and each step has its own of others. What is computed once is there before the first step, and
// what runs behind all steps waits for all of them.
Accesses AccessesBetweenStages(const StepPlan& plan) {
  Accesses accesses = AccessesOfOneStep(plan);
  const auto is_temporary = [&](const MemoryAccess& access) {
    if (access.slot < 0) return false;
    const StorageClass storage_class = plan.slots[access.slot].storage_class;
    return storage_class == StorageClass::kRing || storage_class == StorageClass::kBlock ||
           storage_class == StorageClass::kStacked;
  };
  for (std::vector<MemoryAccess>& of_instruction : accesses) std::erase_if(of_instruction, is_temporary);
  const int end = plan.num_once_stages == 0 ? 0 : plan.stages[plan.num_once_stages - 1].end;
  const auto clear = [](std::vector<MemoryAccess>& of_instruction) { of_instruction.clear(); };
  std::for_each_n(accesses.begin(), end, clear);
  if (const Stage* last = plan.stages.empty() ? nullptr : &plan.stages.back(); last != nullptr && last->is_behind) {
    std::for_each(accesses.begin() + last->begin, accesses.end(), clear);
  }
  return accesses;
}

// Whether stages run `earlier` of some step before `later` of the `delta`-th step after it, for all steps.
class StageOrder {
 public:
  explicit StageOrder(std::span<const Stage> stages) : stages_(stages) {
    for (size_t s = 0; s < stages.size(); ++s) {
      stage_of_.resize(stages[s].end, static_cast<int>(s));
      chunk_ = std::max(chunk_, stages[s].steps_at_once);
    }
  }

  bool Keeps(int earlier, int later, int delta) const {
    const int from = stage_of_[earlier], to = stage_of_[later];
    if (from != to) return from < to || IsInLaterChunk(to, from, delta);
    const bool is_in_turn = earlier < later || stages_[from].steps_at_once == 1;
    return is_in_turn || IsInLaterChunk(to, from, delta);
  }

 private:
  // Stages that take chunks begin again with the next one; what runs once for all steps stands between them.
  bool IsInLaterChunk(int first, int last, int delta) const {
    const auto is_once = [](const Stage& stage) { return stage.steps_at_once == kAllSteps; };
    return chunk_ > 1 && delta >= chunk_ && std::none_of(&stages_[first], &stages_[last] + 1, is_once);
  }

  std::span<const Stage> stages_;
  std::vector<int> stage_of_;  // by instruction
  std::int64_t chunk_ = 0;     // 0: each stage takes all steps
};

}  // namespace

std::string BrokenOrder(const StepPlan& plan) {
  // What writes the first term in place of zeros adds it, as far as the order of terms is asked.
  std::vector<bool> is_written_first(plan.slots.size(), false);
  for (const Instruction& zero : plan.before) {
    for (size_t s = 0; s < plan.slots.size() && zero.rows->only_without_steps; ++s) {
      const bool is_tensor = plan.slots[s].storage_class != StorageClass::kDynamic;
      if (is_tensor && plan.slots[s].base == zero.rows->to.base) is_written_first[s] = true;
    }
  }
  const auto is_term = [&](const InstructionOperand& output) { return output.added || is_written_first[output.slot]; };
  const StageOrder order(plan.stages);
  for (const Dependency& edge : FindConflicts(WithoutSums(plan, AccessesBetweenStages(plan), is_term))) {
    if (order.Keeps(edge.from, edge.to, edge.delta)) continue;
    const int slot = std::max(edge.from_slot, edge.to_slot);
    return StrCat("stages run node ", edge.to, ", ", plan.instructions[edge.to].text, ", before node ", edge.from, ", ",
                  plan.instructions[edge.from].text, ", of ", edge.delta, edge.delta == 1 ? " step" : " steps",
                  " earlier, which it waits for", slot < 0 ? "" : StrCat(" by ", plan.slots[slot].blob));
  }
  return "";
}

std::string WhyInLoop(const Instruction& instruction, const StepPlan& plan) {
  if (!instruction.can_take_steps) return "it takes one step at a time";
  const OperandBytes bytes(instruction);
  const auto text = [](std::int64_t of) { return of < 1024 ? StrCat(of, " bytes") : StrCat(of >> 10, " KB"); };
  if (IsAsFastInLoop(instruction, plan)) {
    return StrCat("with ", RowsOf(instruction), " rows it reads packed weights of ", text(bytes.shared),
                  " as fast in each step as for many at once, and what it gives stays in the caches");
  }
  return StrCat("a step has ", text(bytes.own), " of its own beside ", text(bytes.shared),
                " that all steps share: what many at once ", RowsOf(instruction) > 0 ? "give" : "read",
                " would leave the caches");
}

std::vector<StageDraft> FindStages(const StepPlan& plan) { return StageFinder(plan).Run(); }

}  // namespace stepnet
