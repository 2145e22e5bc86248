// What a kernel for an NVIDIA GPU that is written by hand needs of a run, in the library and in operator libraries:
//
//   const KernelRegistration kernel("acme.Clip", DeviceKind::kCuda, {.make = [](const OperatorCall& op) -> RunFn {
//     return [limit = op.Float("limit")](const OpRun& run) {
//       ClipKernel<<<blocks, threads, 0, StreamOf(run)>>>(run.In(0).As<float>(), run.Out(0).As<float>(), limit, …);
//       CheckCuda(cudaGetLastError(), "acme.Clip");
//     };
//   }});
//
// Data of inputs and outputs are addresses of the GPU; run.ScratchOf gives memory there. What is put into the stream is
// done later, and may be recorded and done many times: the host must not wait.
#pragma once

#include <cuda_runtime_api.h>

#include "stepnet/core/operator.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

// The stream that the run puts its work into. The GPU that it belongs to is the thread's current one from here on.
inline cudaStream_t StreamOf(const OpRun& run) {
  auto& queue = static_cast<CudaQueue&>(run.queue());
  UseCudaDevice(queue.runtime().index());
  return queue.stream();
}

}  // namespace stepnet
