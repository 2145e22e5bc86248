// StepPlan: what one step does and where its values live.
//
// Instructions that need not wait for their turn in a loop run for many steps at once: compiler/find_stages.h.
//
// A plan is immutable and knows no threads, no tensors and no number of steps: it is made once for given shapes,
// printed, tested, and shared by every run. A run gives it memory (RunState); an executor carries it out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/compiler/recomputed_value.h"
#include "stepnet/compiler/row_move.h"
#include "stepnet/compiler/slot.h"
#include "stepnet/compiler/stage.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/target.h"

namespace stepnet {

// What an instruction reads or writes.
struct InstructionOperand {
  int slot = 0;
  TensorInfo info;           // of one step; meaningless in kDynamic slots
  int position = 0;          // among the operator's inputs or outputs
  bool added = false;        // an output: to what the memory holds
  bool shape_alone = false;  // an input of which no element is read: its memory may be too small
  bool has_rows = false;     // dimension 0 counts rows, and those of all steps lie one after the other
  bool has_batch = false;    // it has a row for each of Instruction::batch_rows
  bool has_units = false;    // a part of the units finds its elements in columns of its own (compiler/unit_parts.h)
};

// One operator or move of the step.
struct Instruction {
  std::string text;  // "y = FC(x, w, b)"
  std::string type;
  int op_index = -1;     // in the step net; -1 for moves
  std::string net = {};  // as of StepNode
  RunFn kernel;
  std::vector<InstructionOperand> inputs;
  std::vector<InstructionOperand> outputs;  // without those that another instruction of the same operator gives
  int num_outputs = 0;                      // how many the operator has, in all its instructions
  std::optional<InstructionOperand>
      packed;                      // another form of an input (Kernel::packing), used where runs are long enough
  bool can_take_steps = false;     // may run for several steps, with all rows of the operands that have rows
  std::int64_t steps_at_once = 1;  // steps that one run is for, or kAllSteps; 1 without `can_take_steps`
  bool by_blobs = false;           // as StepNode says
  bool has_side_effects = false;
  bool checks_values = false;    // Kernel::checks_values
  bool names_operators = false;  // its kernel adds to errors and faults which operator of the step net they are of
  Cost cost = {};                // estimate for one step, also where a run is for many
  int max_parts = 1;             // into how many parts, which may run at the same time, it can be cut
  bool only_copies = false;      // it copies and fills (core/expansion.h), and so may be a part of a region for nothing
  bool by_elements = false;      // each part is given a range of the elements; otherwise the kernel takes its share
  std::int64_t batch_rows = 0;   // rows of the batch that it keeps apart (compiler/batch_rows.h); 0: it does not
  std::int64_t units = 0;        // that a region can be cut into (compiler/unit_parts.h); 0: it cannot
  bool can_part_units = false;   // it can run for parts of the units: Kernel::can_part_units
  bool can_pack = false;         // its kernel has another form of a weight, with which products of few rows are fast
  std::shared_ptr<const OperatorCall> call = {};  // null for moves, packing and regions of several operators
  std::optional<RowMove> rows = {};               // that it moves, around the loop, without operands or a kernel
};

struct Schedule;

// A piece of the arena, for one base.
struct ArenaPiece {
  int base = -1;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 1;       // 0: T rows
  bool of_block = false;       // one for each step of a block, and no more than the run has
  std::int64_t min_steps = 0;  // runs of fewer steps do without it
  bool is_once = false;        // it holds what is computed once for all steps, of what they share
  bool is_temporary = false;   // nobody reads it after the run: the next run, of whatever plan, may have it

  // Others read it after the run.
  bool IsKept() const { return !is_once && !is_temporary; }
  // What a run of so many steps has. Throws kOutOfMemory when they exceed int64.
  std::int64_t BytesFor(std::int64_t num_steps) const;
};

struct StepPlan {
  std::string name;  // of the step net
  bool backward = false;
  std::uint64_t number = 0;  // tells the plans of the process apart
  const Target* target = &kCpuTarget;
  std::vector<Slot> slots;
  std::vector<Instruction> instructions;  // by stages; those of a loop in program order
  std::vector<Stage> stages;              // a stage may run for a step when those before it have run for that step
  std::vector<std::shared_ptr<const Schedule>> schedules;  // of each stage; empty where the executor follows none
  std::vector<Instruction> before;  // the first step: they move whole rows (Instruction::rows), in this order
  std::vector<Instruction> after;   // the last step
  std::vector<ArenaPiece> arena;
  int num_bases = 0;
  // So many stages, the first ones, compute once for all steps what follows from memory that all steps share and none
  // writes: a run whose memory holds the same may keep what an earlier one has made.
  int num_once_stages = 0;
  std::vector<bool> is_copied;  // by base: steps see a copy of what the caller has lent (RowMove::Kind::kLend)
  bool gives = false;           // it changes what the caller owns, in the end (RowMove::Kind::kGive)
  // Dynamic blobs: for each list whether it has one blob a step or one in all.
  std::vector<bool> dynamic_lists;
  // Where each blob of the step net is found after the last operator, and what it holds.
  struct Final {
    int slot = 0;
    TensorInfo info;
  };
  std::map<std::string, Final> finals;
  // The slots of what is computed once for all steps, by the names of values (StepGraph::NameOf).
  std::map<std::string, int> once;
  // The plan need not be run: no instruction writes an element or does anything else that shows (an empty batch).
  bool does_nothing = false;
  std::int64_t chunk_steps = 0;  // how many steps one stage after the other takes; 0: each stage takes all of them
  // Stages that do not run once for all steps go, one behind the other, through so many steps, then through as many
  // more: a power of two of chunks. What they pass to each other is there for so many (StorageClass::kBlock). 0:
  // through all.
  std::int64_t block_steps = 0;
  // The schedule by which stages overlap: one task for each stage and chunk, without the stages that run once for all
  // steps. Null where stages run one after the other.
  std::shared_ptr<const Schedule> pipeline;
  // The same of runs of fewer steps than their stages' schedules are for (Schedule::of_shorter_runs). Null: they do not
  // overlap, or do in all runs.
  std::shared_ptr<const Schedule> pipeline_of_shorter_runs;
  std::int64_t max_steps = 0;  // how many may be under way at once; 0: as many as suit the threads
  // What the run forward does not keep, as memory is short, and the steps back compute again.
  std::vector<RecomputedValue> recomputed;
  // How many queues of a device stages may run in at once; 0: as many as suit it (Target::max_queues).
  std::int64_t max_queues = 0;

  // In traces, statistics and schedules instructions around the loop have numbers behind those of the loop: so much is
  // added to their place in `before` and `after`.
  size_t FirstNumberBefore() const { return instructions.size(); }
  size_t FirstNumberAfter() const { return instructions.size() + before.size(); }

  // It was made for an executor that follows schedules.
  bool IsScheduled() const { return !schedules.empty(); }
  // Each piece of the arena starts on a cache line.
  static std::int64_t AlignedBytes(std::int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }
  // Memory of the arena for `num_steps` steps, and of what is temporary in it. Throws kOutOfMemory when it exceeds
  // int64.
  std::int64_t ArenaBytes(std::int64_t num_steps) const;
  std::int64_t TemporaryBytes(std::int64_t num_steps) const;
};

}  // namespace stepnet
