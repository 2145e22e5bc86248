// Marks in streams, for others to wait for.
#pragma once

#include <memory>

#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

struct CudaEventDelete {
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
};
using CudaEvent = std::unique_ptr<CUevent_st, CudaEventDelete>;

// What the stream has been given so far. A thread that waits for it sleeps, or, with 0, may look again and again.
inline CudaEvent EventOf(cudaStream_t stream, unsigned flags = 0) {
  cudaEvent_t made = nullptr;
  STEPNET_CUDA_CALL(cudaEventCreateWithFlags(&made, cudaEventDisableTiming | flags));
  CudaEvent event(made);
  STEPNET_CUDA_CALL(cudaEventRecord(made, stream));
  return event;
}
inline CudaEvent EventOf(const CudaQueue& queue, unsigned flags = 0) { return EventOf(queue.stream(), flags); }

// What the stream is given from now on comes behind the event.
inline void WaitFor(const CudaEvent& event, cudaStream_t stream) {
  STEPNET_CUDA_CALL(cudaStreamWaitEvent(stream, event.get(), 0));
}
inline void WaitFor(const CudaEvent& event, const CudaQueue& queue) { WaitFor(event, queue.stream()); }

}  // namespace stepnet
