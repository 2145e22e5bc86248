#include "stepnet/gpu/cuda/cuda_runtime.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"
#include "stepnet/gpu/cuda/accumulate.h"
#include "stepnet/gpu/cuda/cuda_call.h"

namespace stepnet {
namespace {

std::string ArchitectureOf(const cudaDeviceProp& properties) {
  // Instructions of Hopper alone have an architecture of their own.
  const char* own = properties.major == 9 && properties.minor == 0 ? "a" : "";
  return StrCat("sm_", properties.major, properties.minor, own);
}

}  // namespace

// Sizes grow by an eighth, so that what is freed fits again.
std::int64_t CudaMemory::BlockBytes(std::int64_t bytes) {
  constexpr std::int64_t kUnit = 512;
  std::int64_t unit = kUnit;
  while (bytes / unit > 16) unit *= 2;
  return std::max<std::int64_t>((bytes + unit - 1) / unit, 1) * unit;
}

void* CudaMemory::Allocate(std::int64_t bytes) {
  const std::int64_t block = BlockBytes(bytes);
  if (block > use.limit - use.current) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat("the GPU is asked for ", bytes, " bytes; ", use.current, " of the allowed ", use.limit,
                       " are in use (raise the limit with --max_device_memory)"));
  }
  void* memory = nullptr;
  if (const auto found = free_.find(block); found != free_.end()) {
    memory = found->second;
    free_.erase(found);
    free_bytes_ -= block;
  } else {
    cudaError_t result = cudaMalloc(&memory, static_cast<size_t>(block));
    if (result == cudaErrorMemoryAllocation && !free_.empty()) {
      static_cast<void>(cudaGetLastError());
      STEPNET_CUDA_CALL(cudaDeviceSynchronize());
      ReleaseFree();
      result = cudaMalloc(&memory, static_cast<size_t>(block));
    }
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorCode::kOutOfMemory,
                  StrCat("the GPU has no ", bytes, " bytes left; this process uses ", use.current));
    }
    CheckCuda(result, "cudaMalloc");
  }
  use.current += block;
  use.peak = std::max(use.peak, use.current);
  return memory;
}

void CudaMemory::Free(void* memory, std::int64_t bytes) noexcept {
  const std::int64_t block = BlockBytes(bytes);
  use.current -= block;
  free_.emplace(block, memory);
  free_bytes_ += block;
}

void CudaMemory::ReleaseFree() noexcept {
  for (const auto& [bytes, memory] : free_) static_cast<void>(cudaFree(memory));
  free_.clear();
  free_bytes_ = 0;
}

void UseCudaDevice(int index) {
  thread_local int current = -1;
  if (current == index) return;
  STEPNET_CUDA_CALL(cudaSetDevice(index));
  current = index;
}

CudaRuntime::CudaRuntime(int index) : index_(index) {
  UseCudaDevice(index);
  cudaDeviceProp properties;
  STEPNET_CUDA_CALL(cudaGetDeviceProperties(&properties, index));
  architecture_ = ArchitectureOf(properties);
  num_processors_ = properties.multiProcessorCount;
  size_t free = 0, total = 0;
  STEPNET_CUDA_CALL(cudaMemGetInfo(&free, &total));
  memory_.use.limit = static_cast<std::int64_t>(total);
  queue_ = std::make_unique<CudaQueue>(*this);
}

void* CudaRuntime::Allocate(std::int64_t bytes) {
  ExpectCudaContext();
  const std::lock_guard lock(mutex_);
  UseCudaDevice(index_);
  return memory_.Allocate(bytes);
}

void CudaRuntime::Free(void* memory, std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  memory_.Free(memory, bytes);
}

Queue& CudaRuntime::queue() { return *queue_; }

MemoryUse CudaRuntime::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_.use;
}

std::int64_t CudaRuntime::num_host_waits() const { return host_waits_; }

void CudaRuntime::SetMemoryLimit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes < memory_.use.current) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("a limit of ", bytes, " bytes for the GPU, of which ", memory_.use.current, " are in use"));
  }
  memory_.use.limit = bytes;
}

CudaQueue::CudaQueue(CudaRuntime& runtime) : runtime_(runtime) {
  STEPNET_CUDA_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaQueue::~CudaQueue() {
  for (const Staging& staging : staging_) {
    static_cast<void>(cudaEventDestroy(staging.done));
    static_cast<void>(cudaFreeHost(staging.memory));
  }
  static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaQueue::Copy(const void* from, void* to, std::int64_t bytes) {
  if (bytes == 0) return;
  UseCudaDevice(runtime_.index());
  STEPNET_CUDA_CALL(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
}

void CudaQueue::Fill(void* to, std::uint8_t byte, std::int64_t bytes) {
  if (bytes == 0) return;
  UseCudaDevice(runtime_.index());
  STEPNET_CUDA_CALL(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), stream_));
}

void CudaQueue::Add(const void* from, void* to, DType dtype, std::int64_t count) {
  UseCudaDevice(runtime_.index());
  if (dtype == DType::kDouble) {
    CheckCuda(LaunchAdd(static_cast<const double*>(from), static_cast<double*>(to), count, stream_), "add");
  } else if (dtype == DType::kFloat) {
    CheckCuda(LaunchAdd(static_cast<const float*>(from), static_cast<float*>(to), count, stream_), "add");
  } else {
    throw Error(ErrorCode::kTypeMismatch, StrCat("sums on the GPU are of float and double, not of ", dtype));
  }
}

CudaQueue::Staging CudaQueue::TakeStaging(std::int64_t bytes) {
  if (!staging_.empty() && staging_.front().bytes >= bytes && cudaEventQuery(staging_.front().done) == cudaSuccess) {
    const Staging staging = staging_.front();
    staging_.pop_front();
    return staging;
  }
  static_cast<void>(cudaGetLastError());  // "not ready" is no error
  // The oldest ones go where they are too small, or too many.
  constexpr size_t kMaxStaging = 16;
  if (staging_.size() >= kMaxStaging) {
    const Staging oldest = staging_.front();
    staging_.pop_front();
    STEPNET_CUDA_CALL(cudaEventSynchronize(oldest.done));
    if (oldest.bytes >= bytes) return oldest;
    STEPNET_CUDA_CALL(cudaEventDestroy(oldest.done));
    STEPNET_CUDA_CALL(cudaFreeHost(oldest.memory));
  }
  Staging made{.bytes = std::max<std::int64_t>(bytes, 64 << 10)};
  STEPNET_CUDA_CALL(cudaHostAlloc(&made.memory, static_cast<size_t>(made.bytes), cudaHostAllocDefault));
  STEPNET_CUDA_CALL(cudaEventCreateWithFlags(&made.done, cudaEventDisableTiming));
  return made;
}

void CudaQueue::CopyFromHost(const void* from_host, void* to, std::int64_t bytes) {
  UseCudaDevice(runtime_.index());
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  STEPNET_CUDA_CALL(cudaStreamIsCapturing(stream_, &status));
  if (status != cudaStreamCaptureStatusNone) {
    was_asked_for_host_bytes_ = true;
    return;
  }
  const std::lock_guard lock(mutex_);
  constexpr std::int64_t kPiece = 8 << 20;
  for (std::int64_t begin = 0; begin < bytes; begin += kPiece) {
    const std::int64_t piece = std::min(bytes - begin, kPiece);
    const Staging staging = TakeStaging(piece);
    std::memcpy(staging.memory, static_cast<const std::byte*>(from_host) + begin, static_cast<size_t>(piece));
    STEPNET_CUDA_CALL(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin, staging.memory, static_cast<size_t>(piece),
                                      cudaMemcpyHostToDevice, stream_));
    STEPNET_CUDA_CALL(cudaEventRecord(staging.done, stream_));
    staging_.push_back(staging);
  }
}

void CudaQueue::CopyToHost(const void* from, void* to_host, std::int64_t bytes) {
  UseCudaDevice(runtime_.index());
  if (bytes > 0) {
    STEPNET_CUDA_CALL(cudaMemcpyAsync(to_host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
  }
  Wait();
}

void CudaQueue::Wait() {
  UseCudaDevice(runtime_.index());
  ++runtime_.host_waits_;
  STEPNET_CUDA_CALL(cudaStreamSynchronize(stream_));
}

int NumCudaDevices() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  return result == cudaSuccess ? count : 0;
}

CudaRuntime& CudaRuntimeOf(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<CudaRuntime>>& runtimes = *new std::map<int, std::unique_ptr<CudaRuntime>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaRuntime>& runtime = runtimes[index];
  if (runtime != nullptr) return *runtime;
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("no GPU can be used here: ", cudaGetErrorString(result), " (", cudaGetErrorName(result), ")"));
  }
  if (index < 0 || index >= count) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("no device cuda:", index, "; this machine has ", count));
  }
  runtime = std::make_unique<CudaRuntime>(index);
  return *runtime;
}

}  // namespace stepnet
