#include <algorithm>

#include "stepnet/gpu/cuda/sum_dims.h"

namespace stepnet {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t OffsetOf(const SumGroups& groups, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = kMaxSumGroups - 1; d >= 0; --d) {
    offset += index % groups.sizes[d] * groups.strides[d];
    index /= groups.sizes[d];
  }
  return offset;
}

// Where an element lies that is summed. Their groups are mostly one: divisions of 64 bits take longer than a sum.
template <bool kIsLine>
__device__ std::int64_t OffsetOfSummed(const SumGroups& groups, std::int64_t index) {
  return kIsLine ? index * groups.strides[kMaxSumGroups - 1] : OffsetOf(groups, index);
}

// A thread for each sum: where each has few elements.
template <typename T, bool kIsLine>
__global__ void SumByThreads(SumDims dims, const T* x, T* out, T factor, bool adds, std::int64_t num_sums,
                             std::int64_t length) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t k = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; k < num_sums; k += stride) {
    const T* from = x + OffsetOf(dims.kept, k);
    T sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += from[OffsetOfSummed<kIsLine>(dims.summed, i)];
    out[k] = adds ? out[k] + factor * sum : factor * sum;
  }
}

// A block for each sum: thread i adds elements i, i + 256, …, and then they are added in pairs.
template <typename T, bool kIsLine>
__global__ void SumByBlocks(SumDims dims, const T* x, T* out, T factor, bool adds, std::int64_t num_sums,
                            std::int64_t length) {
  __shared__ T partial[kThreads];
  for (std::int64_t k = blockIdx.x; k < num_sums; k += gridDim.x) {
    const T* from = x + OffsetOf(dims.kept, k);
    T sum = 0;
    for (std::int64_t i = threadIdx.x; i < length; i += kThreads) sum += from[OffsetOfSummed<kIsLine>(dims.summed, i)];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) out[k] = adds ? out[k] + factor * partial[0] : factor * partial[0];
    __syncthreads();
  }
}

template <typename T, bool kIsLine>
cudaError_t LaunchAs(const SumDims& dims, const T* x, T* out, double factor, bool adds, cudaStream_t stream) {
  const std::int64_t num_sums = dims.kept.size(), length = dims.summed.size();
  if (num_sums == 0) return cudaSuccess;
  constexpr std::int64_t kMaxInTurn = 64;  // it decides in which order elements are added: no figure of a Target
  constexpr std::int64_t kMaxBlocks = 65535;
  if (length <= kMaxInTurn) {
    const auto blocks = static_cast<unsigned>(std::min((num_sums + kThreads - 1) / kThreads, kMaxBlocks));
    SumByThreads<T, kIsLine>
        <<<blocks, kThreads, 0, stream>>>(dims, x, out, static_cast<T>(factor), adds, num_sums, length);
  } else {
    const auto blocks = static_cast<unsigned>(std::min(num_sums, kMaxBlocks));
    SumByBlocks<T, kIsLine>
        <<<blocks, kThreads, 0, stream>>>(dims, x, out, static_cast<T>(factor), adds, num_sums, length);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t Launch(const SumDims& dims, const T* x, T* out, double factor, bool adds, cudaStream_t stream) {
  bool is_line = true;
  for (int d = 0; d + 1 < kMaxSumGroups; ++d) is_line = is_line && dims.summed.sizes[d] == 1;
  return (is_line ? LaunchAs<T, true> : LaunchAs<T, false>)(dims, x, out, factor, adds, stream);
}

// A block for 32 columns: thread (r, c) adds rows r, r + 32, … of column c, and then the 32 sums of a column are added.
constexpr int kSide = 32;

template <typename T>
__global__ void SumRows(const T* x, std::int64_t rows, std::int64_t columns, T* out, bool adds) {
  __shared__ T partial[kSide][kSide];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSide + threadIdx.x;
  T sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t row = threadIdx.y; row < rows; row += kSide) sum += x[row * columns + column];
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int r = 1; r < kSide; ++r) sum += partial[r][threadIdx.x];
  out[column] = adds ? out[column] + sum : sum;
}

template <typename T>
cudaError_t LaunchSumRowsOf(const T* x, std::int64_t rows, std::int64_t columns, T* out, bool adds,
                            cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((columns + kSide - 1) / kSide);
  SumRows<<<blocks, dim3(kSide, kSide), 0, stream>>>(x, rows, columns, out, adds);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSumRows(const float* x, std::int64_t rows, std::int64_t columns, float* out, bool adds,
                          cudaStream_t stream) {
  return LaunchSumRowsOf(x, rows, columns, out, adds, stream);
}
cudaError_t LaunchSumRows(const double* x, std::int64_t rows, std::int64_t columns, double* out, bool adds,
                          cudaStream_t stream) {
  return LaunchSumRowsOf(x, rows, columns, out, adds, stream);
}

cudaError_t LaunchSumDims(const SumDims& dims, const float* x, float* out, double factor, bool adds,
                          cudaStream_t stream) {
  return Launch(dims, x, out, factor, adds, stream);
}
cudaError_t LaunchSumDims(const SumDims& dims, const double* x, double* out, double factor, bool adds,
                          cudaStream_t stream) {
  return Launch(dims, x, out, factor, adds, stream);
}

}  // namespace stepnet
