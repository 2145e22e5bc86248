// LimitedMemory: another limit of tensor memory until the scope ends.
#pragma once

#include "stepnet/core/tensor.h"

namespace stepnet {

class LimitedMemory {
 public:
  explicit LimitedMemory(std::int64_t bytes) : before_(TensorMemory().limit) { SetTensorMemoryLimit(bytes); }
  ~LimitedMemory() { SetTensorMemoryLimit(before_); }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;

 private:
  std::int64_t before_;
};

}  // namespace stepnet
