#include "stepnet/core/blob_state.h"

#include <utility>

namespace stepnet {

BlobState::BlobState(const Blob& blob)
    : tensor_(blob.tensor_),
      storage_(blob.tensor_.storage_),
      capacity_(blob.tensor_.CapacityBytes()),
      object_(blob.object_),
      object_address_(blob.object_.get()),
      type_(blob.type_) {
  tensor_.storage_.reset();
  num_holders_ = blob.HasTensor() ? storage_.use_count() : object_.use_count();
}

bool BlobState::IsOf(const Blob& blob) const {
  if (!blob.HasTensor()) {
    return tensor_.data_ == nullptr && blob.object_.get() == object_address_ &&
           blob.object_.use_count() == num_holders_;
  }
  const Tensor& tensor = blob.tensor_;
  return tensor.data_ == tensor_.data_ && tensor.dtype_ == tensor_.dtype_ && tensor.device_ == tensor_.device_ &&
         tensor.storage_.use_count() == num_holders_ && tensor.CapacityBytes() == capacity_ &&
         tensor.shape_ == tensor_.shape_;
}

bool BlobState::Restore(Blob& blob) const {
  if (IsOf(blob)) return true;
  blob.Reset();
  if (tensor_.data_ != nullptr) {
    blob.tensor_ = tensor_;
    blob.tensor_.storage_ = storage_.lock();
    if (blob.HasTensor()) return true;
    blob.Reset();
    return false;
  }
  blob.object_ = object_.lock();
  blob.type_ = type_;
  return blob.HasObject() == (object_address_ != nullptr);
}

std::shared_ptr<const void> BlobState::Take(Blob& blob) {
  std::shared_ptr<const void> held = std::move(blob.object_);
  if (blob.HasTensor()) held = std::make_shared<const Tensor>(std::move(blob.tensor_));
  blob.Reset();
  return held;
}

}  // namespace stepnet
