// BlobState: what a blob holds at a moment, without holding on to it.
#pragma once

#include <cstdint>
#include <memory>
#include <typeindex>

#include "stepnet/core/workspace.h"

namespace stepnet {

class BlobState {
 public:
  explicit BlobState(const Blob& blob);
  // Whether the blob holds the same: nothing, the same object, or a tensor of the same dtype and shape in the same
  // memory, which as many tensors share. What its elements are does not matter.
  bool IsOf(const Blob& blob) const;
  // Gives the blob that again. False where it no longer exists: the blob holds nothing then.
  bool Restore(Blob& blob) const;

  // Leaves nothing in the blob. What it held is held by what is returned.
  static std::shared_ptr<const void> Take(Blob& blob);

 private:
  Tensor tensor_;  // without its storage
  std::weak_ptr<Storage> storage_;
  std::int64_t capacity_ = 0;  // of the memory from the first element on, in bytes
  std::weak_ptr<const void> object_;
  const void* object_address_ = nullptr;
  std::type_index type_;
  long num_holders_ = 0;  // of the storage, or of the object
};

}  // namespace stepnet
