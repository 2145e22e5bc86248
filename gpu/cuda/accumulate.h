// What queues of the GPU do with memory beyond what CUDA itself does: sums in place, for gradients and what steps add
// up, and copies to many places.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stepnet {

// to[i] += from[k * size + i] for k = 0, 1, … count - 1, in the order of the stream.
cudaError_t LaunchAddEach(const float* from, float* to, std::int64_t size, std::int64_t count, cudaStream_t stream);
cudaError_t LaunchAddEach(const double* from, double* to, std::int64_t size, std::int64_t count, cudaStream_t stream);
// `to` becomes `count` times the bytes at `from`.
cudaError_t LaunchCopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count, cudaStream_t stream);

}  // namespace stepnet
