#include <algorithm>

#include "stepnet/gpu/cuda/accumulate.h"

namespace stepnet {
namespace {

constexpr int kThreads = 256;

// The first element of a thread, and how far its next one is.
__device__ std::int64_t First() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
__device__ std::int64_t Stride() { return static_cast<std::int64_t>(gridDim.x) * kThreads; }

unsigned Blocks(std::int64_t size) {
  constexpr std::int64_t kMaxBlocks = 4096;
  return static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxBlocks));
}

template <typename T>
__global__ void AddKernel(const T* from, T* to, std::int64_t size, std::int64_t count) {
  for (std::int64_t i = First(); i < size; i += Stride()) {
    T sum = to[i];
    for (std::int64_t k = 0; k < count; ++k) sum += from[k * size + i];
    to[i] = sum;
  }
}

template <typename T>
cudaError_t Add(const T* from, T* to, std::int64_t size, std::int64_t count, cudaStream_t stream) {
  if (size == 0 || count == 0) return cudaSuccess;
  AddKernel<T><<<Blocks(size), kThreads, 0, stream>>>(from, to, size, count);
  return cudaGetLastError();
}

template <typename T>
__global__ void CopyKernel(const T* from, T* to, std::int64_t size, std::int64_t count) {
  for (std::int64_t i = First(); i < size * count; i += Stride()) to[i] = from[i % size];
}

template <typename T>
cudaError_t Copy(const void* from, void* to, std::int64_t bytes, std::int64_t count, cudaStream_t stream) {
  const std::int64_t size = bytes / static_cast<std::int64_t>(sizeof(T));
  CopyKernel<T>
      <<<Blocks(size * count), kThreads, 0, stream>>>(static_cast<const T*>(from), static_cast<T*>(to), size, count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchAddEach(const float* from, float* to, std::int64_t size, std::int64_t count, cudaStream_t stream) {
  return Add(from, to, size, count, stream);
}
cudaError_t LaunchAddEach(const double* from, double* to, std::int64_t size, std::int64_t count, cudaStream_t stream) {
  return Add(from, to, size, count, stream);
}

cudaError_t LaunchCopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count, cudaStream_t stream) {
  if (bytes == 0 || count == 0) return cudaSuccess;
  const auto is_of_words = [](std::uintptr_t at) { return at % sizeof(std::uint32_t) == 0; };
  if (is_of_words(reinterpret_cast<std::uintptr_t>(from)) && is_of_words(reinterpret_cast<std::uintptr_t>(to)) &&
      is_of_words(static_cast<std::uintptr_t>(bytes))) {
    return Copy<std::uint32_t>(from, to, bytes, count, stream);
  }
  return Copy<std::uint8_t>(from, to, bytes, count, stream);
}

}  // namespace stepnet
