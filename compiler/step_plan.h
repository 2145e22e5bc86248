// StepPlan: what one timestep does and where its values live.
//
// Instructions that need not wait for their turn in a loop run for many steps at once: compiler/stages.h.
//
// A plan is immutable and knows no threads, no tensors and no number of steps: it is made once for given shapes,
// printed, tested, and shared by every run. A run gives it memory (RunState); an executor carries it out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/slot.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/target.h"

namespace stepnet {

struct Operand {
  int slot = 0;
  TensorInfo info;               // of one step; meaningless in kDynamic slots
  int position = 0;              // among the operator's inputs or outputs
  bool adds = false;             // of outputs: to what the memory holds
  bool contiguous_rows = false;  // dimension 0 counts rows, and those of all steps lie one after the other
};

// One operator or transfer of the step.
struct Instruction {
  std::string text;  // "y = FC(x, w, b)"
  std::string type;
  int op_index = -1;  // in the step net; -1 for transfers
  RunFn kernel;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;    // not those that another instruction of the operator gives
  int num_outputs = 0;             // of the operator
  std::optional<Operand> packed;   // another form of an input (Kernel::packing), used where runs are long enough
  bool can_batch_steps = false;    // may run for several steps, with all rows of the operands that have rows
  std::int64_t steps_at_once = 1;  // that a run is for, more than one with `can_batch_steps` alone; kAllSteps
  bool dynamic = false;            // goes through blobs
  bool has_side_effects = false;
  bool checks_values = false;  // Kernel::checks_values
  Cost cost = {};              // estimate; of what runs over time a step's share
  int max_parts = 1;           // that may run at the same time
  bool by_elements = false;    // each part is given a range of the elements; otherwise the kernel takes its share
  std::shared_ptr<const OperatorCall> call = {};  // of a dynamic operator, to infer its shapes at each step
};

struct Schedule;

// Instructions [begin, end) of a plan, which run in turn for one step after the other, for several steps at once, or
// once for all.
struct Stage {
  int begin = 0;
  int end = 0;
  std::int64_t steps_at_once = 1;
  std::int64_t min_steps = 0;                // it is left out of runs of fewer
  std::shared_ptr<const Schedule> schedule;  // for the executor "parallel"; otherwise null
};

// "in each step", "for 16 steps at once", "once for all steps".
std::string StageTitle(const Stage& stage);

// A region of the arena.
struct ArenaSlot {
  int base = -1;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 1;  // 0: T rows
};

struct StepPlan {
  std::string name;  // of the step net
  bool backward = false;
  const Target* target = &kCpuTarget;
  std::vector<Slot> slots;
  std::vector<Instruction> instructions;  // by stages; those of a loop in program order
  std::vector<Stage> stages;              // each may run for a step when those before it have run for that step
  std::vector<ArenaSlot> arena;
  int num_bases = 0;
  std::vector<bool> writes;  // by base: whether an instruction writes to it
  // Dynamic blobs: for each list whether it has one blob a step or one in all.
  std::vector<bool> dynamic_lists;
  // Where each blob of the step net is found after the last operator, and what it holds.
  struct Final {
    int slot = 0;
    TensorInfo info;
  };
  std::map<std::string, Final> finals;
  // Bases of sums from zero whose first term a run of any steps writes: they need not be zeros before.
  std::set<int> unzeroed_bases;
  // No instruction writes an element or does anything else that shows (an empty batch): there is no need to run it.
  bool does_nothing = false;
  std::int64_t chunk_steps = 0;  // that one stage after the other takes; 0: each stage takes all of them
  // In which each stage, but those that run once for all steps, is one task for each chunk; null where stages run one
  // after the other.
  std::shared_ptr<const Schedule> pipeline;
  std::int64_t max_steps = 0;  // that may be under way at once; 0: as many as suit the threads

  // Its stages have schedules: it was made for the executor "parallel".
  bool IsScheduled() const { return !stages.empty() && stages.front().schedule != nullptr; }
  // Each region of the arena starts on a cache line.
  static std::int64_t AlignedBytes(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
  // Memory of the arena for `num_steps` steps. Throws kOutOfMemory when it exceeds int64.
  std::int64_t ArenaBytes(std::int64_t num_steps) const;
  std::string ToString() const;
};

}  // namespace stepnet
