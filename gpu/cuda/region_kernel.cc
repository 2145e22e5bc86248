#include "stepnet/gpu/cuda/region_kernel.h"

#include <map>
#include <mutex>
#include <string>

#include "stepnet/gpu/code_cache.h"
#include "stepnet/gpu/cuda/cuda_call.h"

namespace stepnet {
namespace {

// Code that is loaded stays, for all regions of the text.
cudaLibrary_t LibraryOf(const std::string& text, const std::string& architecture) {
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::pair<std::string, std::string>, cudaLibrary_t>;
  const std::shared_ptr<const DeviceCode> code = SharedCodeCache().Get(text, architecture);
  const std::lock_guard lock(mutex);
  cudaLibrary_t& library = libraries[{architecture, text}];
  if (library == nullptr) {
    STEPNET_CUDA_CALL(cudaLibraryLoadData(&library, code->cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  return library;
}

}  // namespace

GpuRegion::GpuRegion(const Region& region, const RegionSourceOptions& options, CudaRuntime& runtime)
    : source_(PrintRegion(region, options)), num_elements_(region.NumElements()) {
  if (source_.launches.empty()) return;
  UseCudaDevice(runtime.index());
  const cudaLibrary_t library = LibraryOf(source_.Text(), runtime.architecture());
  for (const RegionLaunch& launch : source_.launches) {
    STEPNET_CUDA_CALL(cudaLibraryGetKernel(&kernels_.emplace_back(), library, launch.kernel.c_str()));
  }
}

void GpuRegion::Run(const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) const {
  if (source_.launches.empty()) return;
  auto& queue = static_cast<CudaQueue&>(run.queue());
  UseCudaDevice(queue.runtime().index());
  RegionPointers pointers{.inputs = inputs, .outputs = outputs};
  if (source_.scratch_bytes > 0) pointers.scratch = run.ScratchOf<char>(source_.scratch_bytes);
  if (!source_.requirements.empty()) {
    pointers.fault = run.ScratchOf<DeviceFault>(1);
    queue.Fill(pointers.fault, 0, sizeof(DeviceFault));
  }
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const RegionLaunch& launch = source_.launches[k];
    std::vector<std::uint64_t> words = source_.Bind(launch, pointers);
    void* parameters[] = {words.data()};
    STEPNET_CUDA_CALL(cudaLaunchKernel(reinterpret_cast<const void*>(kernels_[k]),
                                       dim3(static_cast<unsigned>(launch.blocks)),
                                       dim3(static_cast<unsigned>(launch.threads)), parameters, 0, queue.stream()));
  }
  if (pointers.fault == nullptr) return;
  DeviceFault found;
  queue.CopyToHost(pointers.fault, &found, sizeof(found));
  if (!found.any()) return;
  Fault fault = FaultOf(found, source_.requirements);
  run.FaultOf(fault.place.element, num_elements_, [&] { return fault.error; });
}

}  // namespace stepnet
