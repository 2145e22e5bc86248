#include "stepnet/gpu/cuda/loaded_code.h"

#include "stepnet/gpu/code_cache.h"
#include "stepnet/gpu/cuda/cuda_call.h"

namespace stepnet {

LoadedCode::LoadedCode(const DeviceCode& code, CudaRuntime& runtime) : runtime_(runtime) {
  UseCudaDevice(runtime.index());
  STEPNET_CUDA_CALL(cudaLibraryLoadData(&library_, code.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
}

LoadedCode::~LoadedCode() {
  runtime_.WhenDone([library = library_] {
    static_cast<void>(cudaLibraryUnload(library));
    static_cast<void>(cudaGetLastError());  // of a device that is lost: the next call is not blamed for it
  });
}

cudaKernel_t LoadedCode::Kernel(const std::string& name) const {
  cudaKernel_t kernel = nullptr;
  STEPNET_CUDA_CALL(cudaLibraryGetKernel(&kernel, library_, name.c_str()));
  return kernel;
}

std::shared_ptr<const LoadedCode> CodeOf(const std::string& text, CudaRuntime& runtime) {
  return runtime.loaded_code().Get(text, [&] {
    return std::make_unique<const LoadedCode>(*SharedCodeCache().Get(text, runtime.architecture()), runtime);
  });
}

}  // namespace stepnet
