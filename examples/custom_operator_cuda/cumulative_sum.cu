// The kernels of acme.CumulativeSum and its gradient for an NVIDIA GPU: a warp a row, 32 elements at a time.
#include <algorithm>

#include "stepnet/gpu/cuda/kernel.h"

namespace {

using namespace stepnet;

constexpr int kThreads = 256, kLanes = 32;

template <typename T>
__global__ void SumRows(const T* x, T* y, std::int64_t rows, std::int64_t columns, bool from_back) {
  const int lane = threadIdx.x % kLanes;
  const std::int64_t first_row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const std::int64_t num_warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / kLanes);
  for (std::int64_t row = first_row; row < rows; row += num_warps) {
    T before = 0;  // the sum of the elements that warps have passed
    for (std::int64_t first = 0; first < columns; first += kLanes) {
      const std::int64_t j = first + lane, at = row * columns + (from_back ? columns - 1 - j : j);
      T sum = j < columns ? x[at] : T{0};
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const T other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
      }
      sum += before;
      if (j < columns) y[at] = sum;
      before = __shfl_sync(0xffffffffu, sum, kLanes - 1);
    }
  }
}

template <typename T>
void Launch(const OpRun& run, bool from_back) {
  const std::int64_t columns = run.In(0).dim(-1), rows = columns == 0 ? 0 : run.In(0).size() / columns;
  if (rows == 0) return;
  constexpr std::int64_t kMaxBlocks = 65535;
  const auto blocks = static_cast<unsigned>(std::min((rows * kLanes + kThreads - 1) / kThreads, kMaxBlocks));
  const T* x = run.In(0).As<T>();
  T* y = run.Out(0).As<T>();
  SumRows<T><<<blocks, kThreads, 0, StreamOf(run)>>>(x, y, rows, columns, from_back);
  CheckCuda(cudaGetLastError(), "acme.CumulativeSum");
}

KernelFactory OnGpu(bool from_back) {
  return [from_back](const OperatorCall&) -> RunFn {
    return [from_back](const OpRun& run) {
      run.In(0).dtype == DType::kFloat ? Launch<float>(run, from_back) : Launch<double>(run, from_back);
    };
  };
}

const KernelRegistration cumulative_sum("acme.CumulativeSum", DeviceKind::kCuda, {.make = OnGpu(false)});
const KernelRegistration gradient("acme.CumulativeSumGradient", DeviceKind::kCuda, {.make = OnGpu(true)});

}  // namespace
