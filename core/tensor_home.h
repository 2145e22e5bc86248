// TensorHome: copies of tensors on a device, each in the memory that the last one of its shape had there. Batches of a
// few sizes may take turns, and what a device plays finds each where it was (nets/net_recordings.h).
#pragma once

#include <mutex>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Safe to use from any thread.
class TensorHome {
 public:
  explicit TensorHome(Device device) : device_(device) {}
  // Other memory than the last time where that is still in use.
  Tensor CopyOf(const Tensor& tensor);

 private:
  static constexpr size_t kMaxShapes = 4;
  const Device device_;
  std::mutex mutex_;
  std::vector<Tensor> last_;  // of each shape, the last used first
};

}  // namespace stepnet
