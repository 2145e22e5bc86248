#include "stepnet/gpu/cuda/pending_calls.h"

#include <iterator>
#include <utility>

namespace stepnet {
namespace {

// Also of an event that will never be reached.
bool IsOver(const CudaEvent& event) {
  const cudaError_t result = cudaEventQuery(event.get());
  if (result == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return result != cudaErrorNotReady;
}

}  // namespace

void PendingCalls::Add(Call call, const CudaQueue& queue) noexcept {
  std::vector<Call> ready;
  {
    const std::lock_guard lock(mutex_);
    unmarked_.push_back(std::move(call));
    if (mark_ != nullptr && !IsOver(mark_)) return;
    ready.swap(marked_);
    mark_.reset();
    try {
      UseCudaDevice(queue.runtime().index());
      mark_ = EventOf(queue);
      marked_.swap(unmarked_);
    } catch (...) {  // a device that is lost does nothing any more
      std::move(unmarked_.begin(), unmarked_.end(), std::back_inserter(ready));
      unmarked_.clear();
    }
  }
  for (const Call& each : ready) each();
}

std::vector<PendingCalls::Call> PendingCalls::Take() {
  const std::lock_guard lock(mutex_);
  std::vector<Call> taken;
  taken.swap(marked_);
  std::move(unmarked_.begin(), unmarked_.end(), std::back_inserter(taken));
  unmarked_.clear();
  mark_.reset();
  return taken;
}

}  // namespace stepnet
