// NumberForLimit: what has turned out to be little enough for memory: it counts until the limit of tensor memory is
// another.
#pragma once

#include <atomic>
#include <cstdint>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Safe to use from any thread.
class NumberForLimit {
 public:
  // 0: there is none.
  std::int64_t Get() const { return limit_ == TensorMemory().limit ? number_.load() : 0; }
  void Keep(std::int64_t number) {
    limit_ = TensorMemory().limit;
    number_ = number;
  }

 private:
  std::atomic<std::int64_t> limit_ = 0, number_ = 0;
};

}  // namespace stepnet
