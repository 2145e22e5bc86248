#include "stepnet/gpu/cuda/region_kernel.h"

#include <array>
#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/loaded_code.h"
#include "stepnet/gpu/kernel_fault.h"

namespace stepnet {

GpuRegion::GpuRegion(const Region& region, const RegionSourceOptions& options, CudaRuntime& runtime)
    : GpuRegion(std::array{&region}, 1, options, runtime) {}

GpuRegion::GpuRegion(std::span<const Region* const> regions, std::int64_t groups, const RegionSourceOptions& options,
                     CudaRuntime& runtime)
    : source_(PrintRegions(regions, groups, options)), num_elements_(regions[0]->NumElements()) {
  if (source_.launches.empty()) return;
  constexpr size_t kMaxParameterBytes = 32'764;  // of a kernel, from compute capability 7.0 on
  for (const RegionLaunch& launch : source_.launches) {
    if (launch.words.size() * sizeof(std::uint64_t) <= kMaxParameterBytes) continue;
    size_t num_inputs = 0, num_outputs = 0;
    for (const Region* region : regions) {
      num_inputs += region->inputs.size();
      num_outputs += region->outputs.size();
    }
    throw Error(ErrorCode::kInvalidNet,
                StrCat(options.name, " has ", num_inputs, " inputs and ", num_outputs,
                       " outputs, more than a kernel of a GPU takes; device_option places it on the CPU"));
  }
  messages_ = FaultMessagesOf(source_.requirements);
  const std::shared_ptr<const LoadedCode> code = CodeOf(source_.Text(), runtime);
  for (const RegionLaunch& launch : source_.launches) kernels_.push_back(code->Kernel(launch.kernel));
  code_ = code;
}

void GpuRegion::Run(const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) const {
  if (source_.launches.empty()) return;
  auto& queue = static_cast<CudaQueue&>(run.queue());
  UseCudaDevice(queue.runtime().index());
  KeepForGraph(code_);
  RegionPointers pointers{.inputs = inputs, .outputs = outputs, .stop = FaultThatStops(run)};
  if (source_.scratch_bytes > 0) pointers.scratch = run.ScratchOf<char>(source_.scratch_bytes);
  std::optional<KernelFault> fault;
  if (!source_.requirements.empty()) {
    KeepForGraph(messages_);
    fault.emplace(run, messages_, num_elements_);
    pointers.fault = fault->record();
    pointers.site = fault->site();
  }
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const RegionLaunch& launch = source_.launches[k];
    std::vector<std::uint64_t> words = source_.Bind(launch, pointers);
    void* parameters[] = {words.data()};
    LaunchEarly(reinterpret_cast<const void*>(kernels_[k]),
                {.blocks = dim3(static_cast<unsigned>(launch.blocks)),
                 .threads = static_cast<int>(launch.threads),
                 .is_made_for_gpu = true},
                parameters, queue, launch.kernel.c_str());
  }
  if (fault) fault->Report();
}

}  // namespace stepnet
