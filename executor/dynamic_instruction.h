// DynamicInstruction: an instruction of a step whose values have no known shape, or whose kernel takes blobs. It runs
// on the blobs of a DynamicBlobs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/nets/net_operator.h"

namespace stepnet {

// Blobs of one dynamic slot: one, or one for each step.
using BlobList = std::vector<std::unique_ptr<Blob>>;

// Memory that the tensors in blobs hold.
std::int64_t BytesOf(const Blob& blob);
std::int64_t BytesOf(const BlobList& blobs);

// The blobs of a plan's dynamic slots in one run.
class DynamicBlobs {
 public:
  // `plan` must outlive the object.
  explicit DynamicBlobs(const StepPlan& plan);
  // The blobs of this list are those of another run.
  void Lend(int list, const BlobList* blobs) { lists_[list] = blobs; }
  // Makes the blobs that `num_steps` steps need and nobody has lent. Operators look up in `workspace` what they name.
  void Prepare(std::int64_t num_steps, Workspace& workspace);

  const BlobList& List(int list) const { return *lists_[list]; }
  std::int64_t MemoryBytes() const;  // of its own
  Blob* Of(const Slot& slot, std::int64_t t) const;
  Workspace& workspace() const { return *workspace_; }

 private:
  const std::vector<bool>& has_one_a_step_;  // by list
  std::vector<BlobList> own_;
  std::vector<const BlobList*> lists_;
  Workspace* workspace_ = nullptr;
};

// What step t sees of a slot, where it holds a value like `info`. `bases` are the tensors of the plan's bases.
Tensor TensorAt(const Slot& slot, const TensorInfo& info, std::int64_t t, std::span<const Tensor> bases);

class DynamicInstruction {
 public:
  // Instruction `index` of the plan, which must outlive the object. Throws what the kernel's factory throws.
  DynamicInstruction(const StepPlan& plan, int index);

  // Runs it for step t; not from two threads at the same time. Throws kShapeMismatch for a value that does not fit into
  // the memory that it is linked to, and what the operator throws.
  void Run(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs, RunContext& context);

 private:
  const Slot& SlotOf(const InstructionOperand& operand) const { return plan_.slots[operand.slot]; }
  static bool IsDynamic(const Slot& slot) { return slot.storage_class == StorageClass::kDynamic; }
  const Instruction* Giver() const;
  void CheckMoved(const Tensor& tensor, const TensorInfo& room) const;
  void RunMove(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs, RunContext& context) const;
  void RunOperator(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs, RunContext& context);

  const StepPlan& plan_;
  const Instruction& instruction_;
  std::unique_ptr<NetOperator> op_;  // null: a move
};

}  // namespace stepnet
