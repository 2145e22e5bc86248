// Sums in place on the device: for gradients and what steps add up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stepnet {

// to[i] += from[i] in the order of the stream.
cudaError_t LaunchAdd(const float* from, float* to, std::int64_t count, cudaStream_t stream);
cudaError_t LaunchAdd(const double* from, double* to, std::int64_t count, cudaStream_t stream);

}  // namespace stepnet
