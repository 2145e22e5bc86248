#include "stepnet/executor/dynamic_instruction.h"

namespace stepnet {

std::int64_t BytesOf(const Blob& blob) { return blob.HasTensor() ? blob.GetTensor().CapacityBytes() : 0; }

std::int64_t BytesOf(const BlobList& blobs) {
  std::int64_t bytes = 0;
  for (const std::unique_ptr<Blob>& blob : blobs) bytes += BytesOf(*blob);
  return bytes;
}

DynamicBlobs::DynamicBlobs(const StepPlan& plan)
    : has_one_a_step_(plan.dynamic_lists), own_(has_one_a_step_.size()), lists_(has_one_a_step_.size(), nullptr) {}

void DynamicBlobs::Prepare(std::int64_t num_steps, Workspace& workspace) {
  workspace_ = &workspace;
  for (size_t list = 0; list < lists_.size(); ++list) {
    BlobList& own = own_[list];
    if (lists_[list] != nullptr && lists_[list] != &own) continue;
    lists_[list] = &own;
    const std::int64_t wanted = has_one_a_step_[list] ? num_steps : 1;
    while (static_cast<std::int64_t>(own.size()) < wanted) own.push_back(std::make_unique<Blob>("dynamic"));
  }
}

std::int64_t DynamicBlobs::MemoryBytes() const {
  std::int64_t bytes = 0;
  for (const BlobList& list : own_) bytes += BytesOf(list);
  return bytes;
}

Blob* DynamicBlobs::Of(const Slot& slot, std::int64_t t) const {
  return List(slot.base)[has_one_a_step_[slot.base] ? t : 0].get();
}

Tensor TensorAt(const Slot& slot, const TensorInfo& info, std::int64_t t, std::span<const Tensor> bases) {
  return bases[slot.base].At(slot.RowOf(t) * slot.row_bytes, info.dtype, info.shape);
}

DynamicInstruction::DynamicInstruction(const StepPlan& plan, int index)
    : plan_(plan), instruction_(plan.instructions[index]) {
  if (instruction_.call != nullptr) op_ = std::make_unique<NetOperator>(*instruction_.call);
}

void DynamicInstruction::Run(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                             RunContext& context) {
  op_ == nullptr ? RunMove(t, bases, blobs, context) : RunOperator(t, bases, blobs, context);
}

// The operator that gave what a move takes out of a blob.
const Instruction* DynamicInstruction::Giver() const {
  const auto end = std::ranges::find(plan_.instructions, &instruction_, [](const Instruction& i) { return &i; });
  for (auto other = end; other != plan_.instructions.begin();) {
    --other;
    if (std::ranges::count(other->outputs, instruction_.inputs[0].slot, &InstructionOperand::slot) > 0) return &*other;
  }
  return nullptr;
}

// Memory outside has room for one dtype and size. A blob that is linked there, and so has its name, has the shape that
// the link says: others read it so.
void DynamicInstruction::CheckMoved(const Tensor& tensor, const TensorInfo& room) const {
  const Slot &from = SlotOf(instruction_.inputs[0]), &to = SlotOf(instruction_.outputs[0]);
  const bool is_link = from.blob == to.blob;
  const bool is_alike = is_link ? tensor.shape() == room.shape : tensor.size() == room.shape.size();
  if (tensor.dtype() == room.dtype && is_alike) return;
  const std::string blob = StrCat("\"", from.blob, "\" is "), needed = room.Description(), found = tensor.Description();
  const Instruction* const giver = is_link ? Giver() : nullptr;
  if (giver == nullptr) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(blob, found, "; it belongs to \"", to.blob, "\", where a step has room for ", needed));
  }
  throw Error(ErrorCode::kShapeMismatch,
              StrCat(blob, "linked to memory for ", needed, " a step, and ", giver->type, " gives ", found))
      .At({.op_index = giver->op_index, .op_text = giver->text});
}

// A copy or sum between a blob and memory outside.
void DynamicInstruction::RunMove(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                                 RunContext& context) const {
  const InstructionOperand &input = instruction_.inputs[0], &output = instruction_.outputs[0];
  const bool goes_out = IsDynamic(SlotOf(input));
  const InstructionOperand& outside = goes_out ? output : input;
  const TensorInfo& info = outside.info;
  const Tensor memory = TensorAt(SlotOf(outside), info, t, bases);
  Blob* blob = blobs.Of(SlotOf(goes_out ? input : output), t);
  const Tensor& tensor = goes_out ? blob->GetTensor() : blob->MakeTensor(info.dtype, info.shape, memory.device());
  CheckMoved(tensor, info);
  const auto view = [&](const Tensor& of) { return TensorView{of.raw(of.device()), &info.shape, info.dtype}; };
  const TensorView from = view(goes_out ? tensor : memory), to = view(goes_out ? memory : tensor);
  instruction_.kernel(OpRun(std::span(&from, 1), std::span(&to, 1), context, t));
}

// Inputs that lie in memory are lent to the operator as blobs.
void DynamicInstruction::RunOperator(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                                     RunContext& context) {
  std::vector<std::unique_ptr<Blob>> lent;
  std::vector<Blob*> all;
  for (const InstructionOperand& input : instruction_.inputs) {
    const Slot& slot = SlotOf(input);
    if (IsDynamic(slot)) {
      all.push_back(blobs.Of(slot, t));
      continue;
    }
    all.push_back(lent.emplace_back(std::make_unique<Blob>(slot.blob)).get());
    all.back()->SetTensor(TensorAt(slot, input.info, t, bases));
  }
  for (const InstructionOperand& output : instruction_.outputs) all.push_back(blobs.Of(SlotOf(output), t));
  const std::span<Blob* const> inputs = std::span(all).first(instruction_.inputs.size());
  op_->RunOn(inputs, std::span(all).subspan(inputs.size()), blobs.workspace(), context, t);
}

}  // namespace stepnet
