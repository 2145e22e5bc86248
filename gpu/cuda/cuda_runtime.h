// CudaRuntime: one NVIDIA GPU as the device of core/device.h.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/device_report.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/memory_cache.h"
#include "stepnet/gpu/shared_values.h"

namespace stepnet {

class CudaQueue;
class LoadedCode;
class PendingCalls;

// What graphs that are played need.
using KeptForGraphs = std::unordered_set<std::shared_ptr<const void>>;
// While the thread records, what it puts in needs `what`, which is kept for as long as the recording may be played.
void KeepForGraph(const std::shared_ptr<const void>& what);

class CudaRuntime : public DeviceRuntime, public DeviceReport {
 public:
  explicit CudaRuntime(int index);
  ~CudaRuntime() override;

  void* Allocate(std::int64_t bytes) override;
  void Free(void* memory, std::int64_t bytes) noexcept override;
  Queue& queue() override;
  void WhenDone(std::function<void()> then) noexcept override;
  std::shared_ptr<void> MakeCurrent() override;
  // What queue() is where nothing is recorded.
  CudaQueue& own_queue() { return *queue_; }
  MemoryUse memory() const override;
  void SetMemoryLimit(std::int64_t bytes) override;
  std::int64_t num_host_waits() const override;
  void CountHostWait() { ++host_waits_; }
  std::vector<std::string> Choices() const override;
  CodeUse code() const override;
  std::unique_ptr<ActivityLog> LogActivities() override;
  std::unique_ptr<LateFaults> MakeLateFaults() override;
  std::unique_ptr<Recorder> MakeRecorder() override;

  // While it lives, what the thread does with the device but to put in work is noted in `refusal`. Where there is a
  // queue, its stream is being recorded: it is queue() of the thread, whatever meets the host throws, and what graphs
  // need (KeepForGraph) goes into `kept`.
  class WatchedScope {
   public:
    explicit WatchedScope(std::string* refusal, CudaQueue* recorded = nullptr, KeptForGraphs* kept = nullptr);
    WatchedScope(const WatchedScope&) = delete;
    WatchedScope& operator=(const WatchedScope&) = delete;
    ~WatchedScope();

   private:
    CudaQueue* const recorded_;
    std::string* const refusal_before_;
    CudaQueue* const recorded_before_;
    KeptForGraphs* const kept_before_;
  };

  int index() const { return index_; }
  // Says for what machine code is made: "sm_90a".
  const std::string& architecture() const { return architecture_; }
  int num_processors() const { return num_processors_; }
  // Whether a kernel (null: one whose code is made for this GPU) may come to the processors before the one ahead of it
  // ends: the GPU can do so, from sm_90 on, and the kernel waits, which code from the PTX of older ones does not.
  bool MayComeEarly(const void* kernel);
  // "NVIDIA H100 PCIe, 114 processors"
  const std::string& description() const { return description_; }
  // Their text finds them.
  SharedValues<LoadedCode>& loaded_code() { return *loaded_code_; }

 private:
  friend class CudaQueue;
  const int index_;
  std::string architecture_, description_;
  int num_processors_ = 0;
  bool launches_early_ = false;
  std::mutex waiting_mutex_;
  std::unordered_map<const void*, bool> waiting_;  // kernels of this program and of libraries: whether they wait
  mutable std::mutex mutex_;
  std::optional<MemoryCache> memory_;
  std::unique_ptr<CudaQueue> queue_;
  std::unique_ptr<PendingCalls> pending_;
  std::unique_ptr<SharedValues<LoadedCode>> loaded_code_;
  std::atomic<std::int64_t> host_waits_ = 0;
};

// Tells when a stream has reached marks, by events. Safe to use from any thread.
class CudaClock {
 public:
  CudaClock() = default;
  ~CudaClock();
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;

  // Does what Queue::MarkTime does.
  std::shared_ptr<const double> Mark(cudaStream_t stream);
  // Fills in the times of the marks that the stream has reached.
  void Resolve();

 private:
  struct Pending {
    cudaEvent_t event = nullptr;
    std::shared_ptr<double> time;
  };
  cudaEvent_t TakeEvent();
  void ResolveFirst(size_t count);

  std::mutex mutex_;
  std::deque<Pending> pending_;      // in the order of the stream
  std::vector<cudaEvent_t> unused_;  // events
  cudaEvent_t last_ = nullptr;       // that was resolved
  double last_time_ = 0;             // of the host's clock
};

// A stream. Safe to use from any thread.
class CudaQueue : public Queue {
 public:
  // One that `comes_first` is given processors before others.
  explicit CudaQueue(CudaRuntime& runtime, bool comes_first = false);
  ~CudaQueue() override;

  void Copy(const void* from, void* to, std::int64_t bytes) override;
  void Fill(void* to, std::uint8_t byte, std::int64_t bytes) override;
  void Add(const void* from, void* to, DType dtype, std::int64_t count) override;
  void CopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count) override;
  void AddEach(const void* from, void* to, DType dtype, std::int64_t size, std::int64_t count) override;
  void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) override;
  void CopyToHost(const void* from, void* to_host, std::int64_t bytes) override;
  void Wait() override;
  // Waits as Wait does, but for what is pending (DeviceRuntime::WhenDone), which may want locks that the caller has.
  void Synchronize();
  StreamId stream_id() const override { return reinterpret_cast<StreamId>(stream_); }
  void WaitFor(StreamId stream) override;
  void LetWait(StreamId stream) override;
  Device device() const override { return {DeviceKind::kCuda, static_cast<std::int16_t>(runtime_.index())}; }
  std::shared_ptr<const double> MarkTime() override;

  cudaStream_t stream() const { return stream_; }
  CudaRuntime& runtime() const { return runtime_; }
  bool is_recorded() const { return is_recorded_; }

 private:
  friend class CudaRuntime;
  // Pinned memory of the host through which bytes go to the device while the caller goes on.
  struct Staging {
    void* memory = nullptr;
    std::int64_t bytes = 0;
    cudaEvent_t done = nullptr;
  };
  Staging TakeStaging(std::int64_t bytes);

  CudaRuntime& runtime_;
  cudaStream_t stream_ = nullptr;
  CudaClock clock_;
  std::mutex mutex_;
  std::deque<Staging> staging_;  // in the order of their copies
  bool is_recorded_ = false;
};

// Launches a kernel that begins with WaitForKernelsBefore (gpu/device_code.cuh): where it may, it comes to the
// processors while the kernel before it ends (CudaRuntime::MayComeEarly). `what` names it in errors.
struct LaunchShape {
  dim3 blocks;
  int threads = 0;  // of a block
  std::int64_t shared_bytes = 0;
  int cluster = 1;               // blocks, along the first dimension
  bool is_made_for_gpu = false;  // the code, for the one at hand, as that of NVRTC
};
void LaunchEarly(const void* kernel, const LaunchShape& shape, void** parameters, const CudaQueue& queue,
                 const char* what);

// The runtime of the GPU `index`, made when it is first asked for. Throws kInvalidArgument with the reason where there
// is none: no driver, no GPU, no such one.
CudaRuntime& CudaRuntimeOf(int index);
// How many there are; 0 where no driver is.
int NumCudaDevices();

}  // namespace stepnet
