// CudaRuntime: one NVIDIA GPU as the device of core/device.h.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "stepnet/core/device.h"

namespace stepnet {

// Memory of one device, kept when it is freed and given out again by size. Not thread-safe.
class CudaMemory {
 public:
  // Throws kOutOfMemory beyond the limit, or where the device has none: then nothing has been taken.
  void* Allocate(std::int64_t bytes);
  void Free(void* memory, std::int64_t bytes) noexcept;
  // Gives what nobody uses back to the driver. REQUIRES: the device is done with it.
  void ReleaseFree() noexcept;

  MemoryUse use;  // of what is given out

 private:
  static std::int64_t BlockBytes(std::int64_t bytes);

  std::multimap<std::int64_t, void*> free_;  // by bytes
  std::int64_t free_bytes_ = 0;
};

class CudaRuntime : public DeviceRuntime {
 public:
  explicit CudaRuntime(int index);

  void* Allocate(std::int64_t bytes) override;
  void Free(void* memory, std::int64_t bytes) noexcept override;
  Queue& queue() override;
  MemoryUse memory() const override;
  std::int64_t num_host_waits() const override;

  // Throws kInvalidArgument for less than is in use.
  void SetMemoryLimit(std::int64_t bytes);
  int index() const { return index_; }
  // "sm_90a": for what machine code is made.
  const std::string& architecture() const { return architecture_; }
  int num_processors() const { return num_processors_; }

 private:
  friend class CudaQueue;
  const int index_;
  std::string architecture_;
  int num_processors_ = 0;
  mutable std::mutex mutex_;
  CudaMemory memory_;
  std::unique_ptr<class CudaQueue> queue_;
  std::atomic<std::int64_t> host_waits_ = 0;
};

// A stream. Safe to use from any thread.
class CudaQueue : public Queue {
 public:
  explicit CudaQueue(CudaRuntime& runtime);
  ~CudaQueue() override;

  void Copy(const void* from, void* to, std::int64_t bytes) override;
  void Fill(void* to, std::uint8_t byte, std::int64_t bytes) override;
  void Add(const void* from, void* to, DType dtype, std::int64_t count) override;
  void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) override;
  void CopyToHost(const void* from, void* to_host, std::int64_t bytes) override;
  void Wait() override;

  cudaStream_t stream() const { return stream_; }
  CudaRuntime& runtime() const { return runtime_; }
  // Whether bytes of the host were to be copied while the stream was recorded. They are not: when the graph is played,
  // the host's memory holds something else.
  bool was_asked_for_host_bytes() const { return was_asked_for_host_bytes_; }

 private:
  // Pinned memory of the host through which bytes go to the device while the caller goes on.
  struct Staging {
    void* memory = nullptr;
    std::int64_t bytes = 0;
    cudaEvent_t done = nullptr;
  };
  Staging TakeStaging(std::int64_t bytes);

  CudaRuntime& runtime_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::deque<Staging> staging_;  // in the order of their copies
  std::atomic<bool> was_asked_for_host_bytes_ = false;
};

// Makes the device that a call works on the current one of the thread.
void UseCudaDevice(int index);

// The runtime of the GPU `index`, made when it is first asked for. Throws kInvalidArgument with the reason where there
// is none: no driver, no GPU, no such one.
CudaRuntime& CudaRuntimeOf(int index);
// How many there are; 0 where no driver is.
int NumCudaDevices();

}  // namespace stepnet
