// RunState: the memory of one run of a StepPlan, kept for the next run of the same plan.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/executor/dynamic_instruction.h"

namespace stepnet {

// A part of what instructions of a step do, and of how many, which together do all of it. Where it is one of the batch,
// rows are divided, and so is the memory of all operands that have some; otherwise each kernel takes its share, or
// columns.
struct InstructionPart {
  int part = 0;
  int parts = 1;
  bool of_batch = false;
  std::int64_t units = 0;  // not 0: the part is one of these units (OpRun::units)
};

class RunState {
 public:
  // `device` is of the kind that the plan is for.
  explicit RunState(std::shared_ptr<const StepPlan> plan, Device device = {});
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  const StepPlan& plan() const { return *plan_; }
  Device device() const { return device_; }
  std::int64_t num_steps() const { return num_steps_; }
  // How often the instructions of the stage run.
  std::int64_t NumRunsOf(const Stage& stage) const;

  // Tensors of the bases that the plan's bound blobs use, and dynamic blobs that exist before the loop (one a step); to
  // be set before Prepare. Arenas are made by Prepare.
  void SetBase(int base, Tensor tensor) { bases_[base] = std::move(tensor); }
  const Tensor& Base(int base) const { return bases_[base]; }
  // Does what SetBase does, with a tensor of somebody else: steps that write to it work on a copy, which the run makes
  // of it.
  void LendBase(int base, const Tensor& tensor);
  // What the steps of the last run made of a tensor that was lent: `tensor` itself where they do not write to it.
  const Tensor& SeenOf(int base, const Tensor& tensor) const;
  void SetDynamicList(int list, const BlobList* blobs) { blobs_.Lend(list, blobs); }
  // Allocates what `num_steps` steps need (nothing when the last run's memory suffices) and resolves every address.
  void Prepare(std::int64_t num_steps, Workspace& workspace);
  // After a run without a fault: what its first stages computed once, the next runs keep where the tensors that these
  // read are the same, and constant (StepPlan::num_once_stages, Tensor::ConstantId). On the host alone: what a device
  // has recorded runs whole.
  void KeepOnceValues();
  // Lets go of the tensors outside, so that their blobs no longer look shared.
  void ReleaseBases();

  // What the plan does with whole rows around its steps. Throws kShapeMismatch.
  void RunMovesBefore(RunContext& context);
  void RunMovesAfter(RunContext& context);

  // Runs instruction i for the k-th step in the direction of the plan, or the k-th group of as many steps as it takes
  // at once, or a part of it; several at once where FindDependencies allows it. REQUIRES, for parts of the batch:
  // Instruction::batch_rows.
  // What goes wrong is noted in faults(), with operator, net and step, and what comes after a fault does nothing: so
  // the first fault does not depend on threads. Throws what does not follow from net and data, and on devices that do
  // their work later.
  void RunInstruction(int i, std::int64_t k, RunContext& context, const InstructionPart& part = {});
  // Before instructions run for parts of the batch, of which there are so many.
  void CutBatch(int parts);
  // The record holds those of the run since Prepare, each with its place in the step net.
  FaultRecord& faults() { return faults_; }
  // The error of a fault whose place is within the run, with where it is in the step net.
  Error Placed(Fault fault) const;

  // What is its own of the memory that it uses: arena, copies and blobs of steps, but neither the bases that were set
  // nor the temporaries of another run.
  std::int64_t MemoryBytes() const;

  // The next runs have their temporaries where `lender` has its own, which has no run until BorrowTemporaries(nullptr).
  // Both are on one device.
  void BorrowTemporaries(RunState* lender) {
    ReleaseBases();
    temporaries_ = lender == nullptr ? &own_temporaries_ : &lender->own_temporaries_;
  }

  // All addresses that the steps use, after Prepare: runs of equal ones do the same to the same memory.
  std::vector<const void*> Addresses() const;
  // What an executor keeps with this memory.
  std::shared_ptr<void>& executor_data() { return executor_data_; }

  // What executors tell observers of: a thread takes part in the loop (kLoop), or waits in it (kWait).
  RunEvent LoopEvent(RunEventKind kind) const;

  // The blob of the step net as it was after step t: a view. Undefined for dynamic blobs that hold no tensor.
  Tensor Final(const std::string& blob, std::int64_t t) const;
  // The piece of the arena of a stacked blob, uint8 [bytes], by its base.
  Tensor ArenaTensor(int base) const;
  // Frees what the run has kept in a slot: nobody reads it any more. The next run has memory of its own for it.
  void FreeKept(int slot);
  // The blobs of a stacked dynamic blob, one a step.
  const BlobList& DynamicList(int list) const { return blobs_.List(list); }

 private:
  struct BoundOperand {
    std::byte* address = nullptr;  // in step 0, or of the first row of a ring
    std::int64_t row_bytes = 0;
    std::int64_t mask = -1;   // of rows: rings start again
    std::int64_t offset = 0;  // the row of a ring that step 0 finds

    std::byte* At(std::int64_t t) const { return address + ((t + offset) & mask) * row_bytes; }
  };
  struct BoundInstruction {
    std::vector<BoundOperand> operands;  // inputs, then outputs, by position; null where an output is left out
    std::vector<TensorView> views;       // without addresses
    std::vector<Shape> shapes;           // of several steps at once: of the views, then of views of the rest
    const void* packed = nullptr;
    // Parts of the batch have these: shapes of the views with the fewest rows that a part has, then with one more; and
    // the bytes of a row, 0 where all rows share the operand.
    std::vector<Shape> batch_shapes;
    std::vector<std::int64_t> batch_row_bytes;
    std::uint64_t adds = 0;       // bit o: output o is added to what is there
    std::uint64_t with_rows = 0;  // bit i: input i has the rows of all steps that a run is for
    std::unique_ptr<DynamicInstruction> dynamic;
  };
  struct PlacedPiece {
    std::int64_t offset = 0;  // in the memory for all pieces of its kind
    std::int64_t bytes = 0;
    Blob kept = Blob("arena");  // the memory of one that is neither temporary nor once: apart, as it may be freed alone
  };
  struct Temporaries {
    Blob memory{"temporaries"};
    std::int64_t lent_bytes = 0;  // that the last run needed which has borrowed it
  };
  // A tensor outside that the first stages read.
  struct OnceSource {
    std::uint64_t constant_id = 0;
    const void* address = nullptr;
    friend bool operator==(const OnceSource&, const OnceSource&) = default;
  };
  // The number of an arena's base among the pieces.
  size_t PieceOf(int base) const { return base - (plan_->num_bases - pieces_.size()); }
  void MakeArena();
  void MakeTemporaries(std::int64_t bytes);
  void FindOnceSources();
  void SetNumbers(const Tensor& to);
  void RunMoves(const std::vector<Instruction>& moves, size_t first_number, RunContext& context);
  Tensor RowsAt(const BaseRows& rows) const;
  // Steps [t, t + count), which the k-th run of an instruction is for.
  struct StepRange {
    std::int64_t t;
    std::int64_t count;
  };
  StepRange StepsOf(const Instruction& instruction, std::int64_t k) const {
    const std::int64_t at_once = instruction.steps_at_once == kAllSteps ? num_steps_ : instruction.steps_at_once;
    const std::int64_t count = std::min(at_once, num_steps_ - k * at_once);
    return {.t = plan_->backward ? num_steps_ - k * at_once - count : k * at_once, .count = count};
  }
  // The first of the steps, counted in the order in which steps run.
  std::int64_t FirstOf(const StepRange& steps) const {
    return plan_->backward ? num_steps_ - steps.t - steps.count : steps.t;
  }
  // The elements of the views that a part has; none: it has all.
  struct ElementsOfPart {
    std::int64_t begin = 0;
    std::int64_t all = 0;  // how many there are
  };
  // The net in which the instruction's operator has its number.
  const std::string& NetOf(const Instruction& instruction) const {
    return instruction.net.empty() ? plan_->name : instruction.net;
  }
  template <typename Body>
  void NoteFaults(const Instruction& instruction, const StepRange& steps, RunContext& context, const Body& run);
  Error Placed(const Instruction& instruction, Fault fault) const;
  Place PlaceOf(const Instruction& instruction, const Error& error, std::int64_t t, std::int64_t count) const;
  void BindInstruction(const Instruction& instruction, BoundInstruction* bound);
  void BindOperand(const InstructionOperand& operand, size_t k, const Instruction& instruction,
                   BoundInstruction* bound);
  // Throws kShapeMismatch when some step would touch memory beyond that which the slot's base was given.
  void CheckBounds(const Slot& slot, const TensorInfo& info) const;
  // `number`: among all of the plan.
  RunEvent EventOf(const Instruction& instruction, int number, std::int64_t step, const RunContext& context,
                   const InstructionPart& part) const;
  // Calls of their own would take 4 ns of each instruction.
  [[gnu::always_inline]] inline void RunBound(const Instruction& instruction, BoundInstruction& bound,
                                              const StepRange& steps, RunContext& context, InstructionPart part);
  [[gnu::always_inline]] inline void RunKernel(const Instruction& instruction, const BoundInstruction& bound,
                                               const StepRange& steps, RunContext& context, const InstructionPart& part,
                                               std::span<const TensorView> views, const ElementsOfPart& elements);
  void RunElements(const Instruction& instruction, const BoundInstruction& bound, const StepRange& steps,
                   RunContext& context, const InstructionPart& part, std::span<TensorView> views);
  static void NarrowToRows(const InstructionPart& part, const Instruction& instruction, const BoundInstruction& bound,
                           std::span<TensorView> views);
  static void SetShapes(const BoundInstruction& bound, bool of_rest, std::span<TensorView> views);
  std::string InputsText(const Instruction& instruction, std::int64_t t, std::int64_t count) const;
  void RunDynamic(const Instruction& instruction, DynamicInstruction& dynamic, const StepRange& step,
                  RunContext& context);

  std::shared_ptr<const StepPlan> plan_;
  Device device_;
  std::int64_t num_steps_ = 0;
  bool fills_ = false;  // what nobody has written, with a pattern (core/memory_fill.h)
  std::vector<Tensor> bases_;
  std::map<int, Tensor> lent_;  // what steps write to copies of, by base
  std::map<int, Blob> copies_;
  Temporaries own_temporaries_;
  Temporaries* temporaries_ = &own_temporaries_;
  Blob once_{"once"};                     // of pieces that hold what is computed once: no run moves them
  std::int64_t once_steps_ = 0;           // of the longest run, which such pieces have memory for
  std::vector<OnceSource> once_sources_;  // of what they hold; empty where one is not constant
  std::vector<OnceSource> new_sources_;   // the same of the run that begins, to be compared with them
  int num_kept_ = 0;                      // how many instructions, from the first on, have their values there
  DynamicBlobs blobs_;
  std::deque<PlacedPiece> pieces_;  // of the plan's arena, in its order: the last bases
  std::vector<BoundInstruction> instructions_;
  std::pair<const void*, std::int64_t> numbers_;  // of steps: where they are on the device, and how many
  int batch_parts_ = 0;                           // that the shapes of parts of the batch are for
  FaultRecord faults_;
  std::shared_ptr<void> executor_data_;
};

}  // namespace stepnet
