#include <algorithm>

#include "stepnet/gpu/cuda/accumulate.h"

namespace stepnet {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void AddKernel(const T* from, T* to, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    to[i] += from[i];
  }
}

template <typename T>
cudaError_t Launch(const T* from, T* to, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  constexpr std::int64_t kMaxBlocks = 4096;
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
  AddKernel<T><<<blocks, kThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchAdd(const float* from, float* to, std::int64_t count, cudaStream_t stream) {
  return Launch(from, to, count, stream);
}
cudaError_t LaunchAdd(const double* from, double* to, std::int64_t count, cudaStream_t stream) {
  return Launch(from, to, count, stream);
}

}  // namespace stepnet
