// Sums over any dimensions of a tensor.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stepnet {

// Kept and summed groups take turns, of the eight dimensions that a tensor has.
inline constexpr int kMaxSumGroups = 4;

// Groups of neighbouring dimensions with the distance of their elements, the last one fastest. Unused ones have size 1.
struct SumGroups {
  std::int64_t sizes[kMaxSumGroups] = {1, 1, 1, 1};
  std::int64_t strides[kMaxSumGroups] = {};

  std::int64_t size() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
};

// out[k] = or += factor · the sum over `summed` of the elements of x at index k of `kept`; in an order that depends on
// the sizes alone.
struct SumDims {
  SumGroups kept;
  SumGroups summed;
};
cudaError_t LaunchSumDims(const SumDims& dims, const float* x, float* out, double factor, bool adds,
                          cudaStream_t stream);
cudaError_t LaunchSumDims(const SumDims& dims, const double* x, double* out, double factor, bool adds,
                          cudaStream_t stream);

// out[c] = the sum over the rows r of x[r, c], or that is added to it; in an order that depends on the sizes alone.
cudaError_t LaunchSumRows(const float* x, std::int64_t rows, std::int64_t columns, float* out, bool adds,
                          cudaStream_t stream);
cudaError_t LaunchSumRows(const double* x, std::int64_t rows, std::int64_t columns, double* out, bool adds,
                          cudaStream_t stream);

}  // namespace stepnet
