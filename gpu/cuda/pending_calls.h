// PendingCalls: what is to be called when a stream has done what it was given before. Nobody waits for that: each call
// looks for those that are ready. At most one event is on its way for all of them.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "stepnet/gpu/cuda/cuda_event.h"

namespace stepnet {

// Safe to use from any thread. Functions are called without a lock, since they may want others.
class PendingCalls {
 public:
  using Call = std::function<void()>;
  void Add(Call call, const CudaQueue& queue) noexcept;

  // Calls at its end what was added before it began. Its owner waits for the stream meanwhile.
  class WaitScope {
   public:
    explicit WaitScope(PendingCalls& pending) : calls_(pending.Take()) {}
    ~WaitScope() {
      for (const Call& call : calls_) call();
    }
    WaitScope(const WaitScope&) = delete;
    WaitScope& operator=(const WaitScope&) = delete;

   private:
    const std::vector<Call> calls_;
  };

 private:
  std::vector<Call> Take();

  std::mutex mutex_;
  std::vector<Call> marked_;    // ready when the stream has reached the mark
  CudaEvent mark_;              // null: none are marked
  std::vector<Call> unmarked_;  // for the next mark
};

}  // namespace stepnet
