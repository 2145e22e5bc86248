// GpuRegion: a region as compiled kernels of a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/region_source.h"

namespace stepnet {

class GpuRegion {
 public:
  // Prints and compiles it, where no region alike has been. Throws as CompileDeviceCode.
  GpuRegion(const Region& region, const RegionSourceOptions& options, CudaRuntime& runtime);
  // The same of several, as PrintRegions says. Operands are those of one after the other.
  GpuRegion(std::span<const Region* const> regions, std::int64_t groups, const RegionSourceOptions& options,
            CudaRuntime& runtime);

  // Launches it in the order of the run's queue. Pointers as RegionPointers says. Where the region requires something,
  // notes the fault in RunContext::late_faults, or waits and notes it with the run.
  void Run(const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) const;

 private:
  const RegionSource source_;
  const std::int64_t num_elements_;
  std::shared_ptr<const FaultMessages> messages_;  // of source_.requirements
  std::shared_ptr<const void> code_;               // what kernels_ are loaded with
  std::vector<cudaKernel_t> kernels_;              // of source_.launches
};

}  // namespace stepnet
