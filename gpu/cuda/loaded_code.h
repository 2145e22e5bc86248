// LoadedCode: compiled kernels that the driver has loaded, for one GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/nvrtc.h"

namespace stepnet {

// Whoever launches its kernels holds it, and so does a graph that they are part of (KeepForGraph). When it ends, it is
// unloaded behind what the runtime's own queue, in which all work is, was given so far: CUDA does not say that it
// waits.
class LoadedCode {
 public:
  LoadedCode(const DeviceCode& code, CudaRuntime& runtime);
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  cudaKernel_t Kernel(const std::string& name) const;

 private:
  CudaRuntime& runtime_;
  cudaLibrary_t library_ = nullptr;
};

// The kernels of a text for the runtime's GPU, compiled and loaded where nobody has. Throws as CompileDeviceCode.
std::shared_ptr<const LoadedCode> CodeOf(const std::string& text, CudaRuntime& runtime);

}  // namespace stepnet
