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
  const std::int64_t row = slot.ring_rows > 0 ? t % slot.ring_rows : t + slot.offset;
  return bases[slot.base].At(row * slot.row_bytes, info.dtype, info.shape);
}

DynamicInstruction::DynamicInstruction(const StepPlan& plan, int index)
    : plan_(plan), instruction_(plan.instructions[index]) {
  if (instruction_.call != nullptr) op_ = std::make_unique<NetOperator>(*instruction_.call);
}

void DynamicInstruction::Run(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                             RunContext& context) {
  op_ == nullptr ? RunMove(t, bases, blobs, context) : RunOperator(t, bases, blobs, context);
}

// A copy or sum between a blob and memory outside, which has one dtype and size; of a blob that is linked there, and so
// has its name, one shape.
void DynamicInstruction::RunMove(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                                 RunContext& context) const {
  const Operand &input = instruction_.inputs[0], &output = instruction_.outputs[0];
  const bool goes_out = IsDynamic(SlotOf(input));
  const Operand& outside = goes_out ? output : input;
  const TensorInfo& info = outside.info;
  const Tensor memory = TensorAt(SlotOf(outside), info, t, bases);
  Blob* blob = blobs.Of(SlotOf(goes_out ? input : output), t);
  const Tensor& tensor = goes_out ? blob->GetTensor() : blob->MakeTensor(info.dtype, info.shape, memory.device());
  const std::string &from_blob = SlotOf(input).blob, &to_blob = SlotOf(output).blob;
  const bool is_link = from_blob == to_blob;
  const bool is_alike = is_link ? EqualButForOnes(tensor.shape(), info.shape) : tensor.size() == info.shape.size();
  if (tensor.dtype() != info.dtype || !is_alike) {
    const std::string is = StrCat("\"", from_blob, "\" is "), room = info.Description(), found = tensor.Description();
    throw Error(ErrorCode::kShapeMismatch,
                is_link ? StrCat(is, "linked to memory for ", room, " a step, and is ", found, " in this one")
                        : StrCat(is, found, "; it belongs to \"", to_blob, "\", where a step has room for ", room));
  }
  const auto view = [&](const Tensor& of) { return TensorView{of.raw(of.device()), &info.shape, info.dtype}; };
  const TensorView from = view(goes_out ? tensor : memory), to = view(goes_out ? memory : tensor);
  instruction_.kernel(OpRun(std::span(&from, 1), std::span(&to, 1), context, t));
}

// Inputs that lie in memory are lent to the operator as blobs.
void DynamicInstruction::RunOperator(std::int64_t t, std::span<const Tensor> bases, const DynamicBlobs& blobs,
                                     RunContext& context) {
  std::vector<std::unique_ptr<Blob>> lent;
  std::vector<Blob*> all;
  for (const Operand& input : instruction_.inputs) {
    const Slot& slot = SlotOf(input);
    if (IsDynamic(slot)) {
      all.push_back(blobs.Of(slot, t));
      continue;
    }
    all.push_back(lent.emplace_back(std::make_unique<Blob>(slot.blob)).get());
    all.back()->SetTensor(TensorAt(slot, input.info, t, bases));
  }
  for (const Operand& output : instruction_.outputs) all.push_back(blobs.Of(SlotOf(output), t));
  const std::span<Blob* const> inputs = std::span(all).first(instruction_.inputs.size());
  op_->RunOn(inputs, std::span(all).subspan(inputs.size()), blobs.workspace(), context, t);
}

}  // namespace stepnet
