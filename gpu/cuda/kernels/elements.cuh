// What the library's own kernels of a GPU are made of: a body for each element, and sums of what bodies give, in an
// order that depends on sizes alone.
//
// Bodies are structs with a call operator, so that tests run the same code on the CPU: there STEPNET_KERNELS_ON_HOST is
// defined, the memory of a run is the host's, and kernels are registered for a kind of device that nothing else is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stepnet/core/operator.h"
#include "stepnet/gpu/device_code.cuh"
#include "stepnet/gpu/for_floats.h"
#include "stepnet/gpu/kernel_fault.h"
#ifdef STEPNET_KERNELS_ON_HOST
#include <cstring>
#else
#include "stepnet/gpu/cuda/kernel.h"
#include "stepnet/gpu/cuda/operator_kernel.h"
#endif

namespace stepnet {

#ifdef STEPNET_KERNELS_ON_HOST

class GpuKernelOnHost : public KernelRegistration {
 public:
  GpuKernelOnHost(std::string type, Kernel kernel)
      : KernelRegistration(std::move(type), static_cast<DeviceKind>(200), std::move(kernel)) {}
};
using GpuKernel = GpuKernelOnHost;

template <typename Body>
void ForEach(const OpRun&, std::int64_t count, const Body& body) {
  for (std::int64_t i = 0; i < count; ++i) body(i);
}
inline void FillBytes(const OpRun&, void* to, int byte, std::int64_t bytes) {
  if (bytes > 0) std::memset(to, byte, static_cast<size_t>(bytes));
}
inline void KeepForGraph(const std::shared_ptr<const void>&) {}  // nobody records

#else

using GpuKernel = LibraryKernel;
inline constexpr int kForEachThreads = 256;

template <typename Body>
__global__ void ForEachKernel(Body body, std::int64_t count, const device::DeviceFault* stop) {
  device::WaitForKernelsBefore();
  if (device::IsStopped(stop)) return;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kForEachThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kForEachThreads + threadIdx.x; i < count; i += stride) {
    body(i);
  }
}

// Calls body(i) for all i below `count` on the GPU, in any order.
template <typename Body>
void ForEach(const OpRun& run, std::int64_t count, Body body) {
  if (count <= 0) return;
  constexpr std::int64_t kMaxBlocks = 1 << 16;
  const std::int64_t blocks = std::min((count + kForEachThreads - 1) / kForEachThreads, kMaxBlocks);
  const auto* stop = reinterpret_cast<const device::DeviceFault*>(FaultThatStops(run));
  void* parameters[] = {&body, &count, &stop};
  const auto& queue = static_cast<const CudaQueue&>(run.queue());
  UseCudaDevice(queue.runtime().index());
  LaunchEarly(reinterpret_cast<const void*>(ForEachKernel<Body>),
              {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = kForEachThreads}, parameters, queue,
              "a kernel of the library");
}
inline void FillBytes(const OpRun& run, void* to, int byte, std::int64_t bytes) {
  run.queue().Fill(to, static_cast<std::uint8_t>(byte), bytes);
}

#endif

// The record as code of devices has it. A graph that the code is part of keeps the messages.
inline device::FaultSlot SlotOf(const KernelFault& fault) {
  KeepForGraph(fault.messages());
  return {reinterpret_cast<device::DeviceFault*>(fault.record()), std::bit_cast<device::FaultSite>(fault.site())};
}

inline void ClearOutput(const OpRun& run, int o) { FillBytes(run, run.Out(o).data, 0, run.Out(o).size_bytes()); }

// A place in memory for each index of a tensor, whose last dimension is the fastest: the sum of index * stride.
struct Places {
  int rank = 0;
  std::int64_t sizes[Shape::kMaxRank] = {};
  std::int64_t strides[Shape::kMaxRank] = {};

  void Add(std::int64_t size, std::int64_t stride) {
    sizes[rank] = size;
    strides[rank++] = stride;
  }
  std::int64_t size() const {
    std::int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= sizes[d];
    return product;
  }
  __device__ std::int64_t operator()(std::int64_t i) const {
    std::int64_t at = 0;
    for (int d = rank - 1; d > 0; --d) {
      at += i % sizes[d] * strides[d];
      i /= sizes[d];
    }
    return rank == 0 ? 0 : at + i * strides[0];
  }
};

// Whole numbers of either width.
struct Ints {
  const void* data = nullptr;
  bool is_wide = false;

  Ints() = default;
  explicit Ints(const TensorView& tensor) : data(tensor.data), is_wide(tensor.dtype == DType::kInt64) {}
  __device__ long long operator[](std::int64_t i) const {
    return is_wide ? static_cast<const long long*>(data)[i] : static_cast<const int*>(data)[i];
  }
};

// Calls fn with a number as wide as the elements of `dtype`, to move them whatever they are.
template <typename Fn>
void ForBits(DType dtype, const Fn& fn) {
  switch (DTypeBytes(dtype)) {
    case 1: return fn(std::uint8_t{});
    case 2: return fn(std::uint16_t{});
    case 4: return fn(std::uint32_t{});
    default: return fn(std::uint64_t{});
  }
}

// ---- sums

inline constexpr std::int64_t kSumParts = 64;

// Sum k of `count` parts: those that begin at part k * count.
struct SumOfParts {
  const double* parts;
  std::int64_t count;
  std::int64_t parts_of_sum;
  std::int64_t sums_of_sum;
  double* sums;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t first = i % sums_of_sum * count, end = first + count;
    const double* from = parts + i / sums_of_sum * parts_of_sum;
    double sum = 0;
    for (std::int64_t p = first; p < end && p < parts_of_sum; ++p) sum += from[p];
    sums[i] = sum;
  }
};
template <typename Value>
struct SumInParts {
  Value value;
  std::int64_t length;
  std::int64_t num_parts;
  double* parts;

  __device__ void operator()(std::int64_t i) const {
    double sum = 0;
    for (std::int64_t j = i % num_parts; j < length; j += num_parts) sum += value(i / num_parts, j);
    parts[i] = sum;
  }
};

// The sums over j below `length` of value(k, j), which is a double, for each k below `count`: in memory of the run.
template <typename Value>
double* SumsOf(const OpRun& run, std::int64_t count, std::int64_t length, const Value& value) {
  constexpr std::int64_t kMaxThreads = 1 << 16, kElementsOfThread = 16;
  std::int64_t parts = std::min(length / kElementsOfThread, kMaxThreads / std::max<std::int64_t>(count, 1));
  parts = std::max<std::int64_t>(parts, 1);
  auto* sums = run.ScratchOf<double>(count * parts);
  ForEach(run, count * parts, SumInParts<Value>{value, length, parts, sums});
  while (parts > 1) {
    const std::int64_t fewer = (parts + kSumParts - 1) / kSumParts;
    auto* next = run.ScratchOf<double>(count * fewer);
    ForEach(run, count * fewer, SumOfParts{sums, kSumParts, parts, fewer, next});
    sums = next;
    parts = fewer;
  }
  return sums;
}

}  // namespace stepnet
