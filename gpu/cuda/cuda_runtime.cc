#include "stepnet/gpu/cuda/cuda_runtime.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_changes.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"
#include "stepnet/gpu/code_cache.h"
#include "stepnet/gpu/cuda/accumulate.h"
#include "stepnet/gpu/cuda/cublas_lt.h"
#include "stepnet/gpu/cuda/cuda_event.h"
#include "stepnet/gpu/cuda/cuda_recorder.h"
#include "stepnet/gpu/cuda/cupti_log.h"
#include "stepnet/gpu/cuda/loaded_code.h"
#include "stepnet/gpu/cuda/pending_calls.h"
#include "stepnet/gpu/cuda/product_choices.h"
#include "stepnet/gpu/kernel_fault.h"

namespace stepnet {
namespace {

constexpr int kMinComputeCapability = 8;
constexpr int kPtxThatWaits = 90;  // WaitForKernelsBefore is empty in what was made for older GPUs

std::string ArchitectureOf(const cudaDeviceProp& properties) {
  // Instructions of Hopper alone have an architecture of their own.
  const char* own = properties.major == 9 && properties.minor == 0 ? "a" : "";
  return StrCat("sm_", properties.major, properties.minor, own);
}

// Memory of the driver. Whoever calls has made the device the current one.
MemoryCache::Source MemoryOf(CudaRuntime& runtime) {
  return {.device = DeviceName({DeviceKind::kCuda, static_cast<std::int16_t>(runtime.index())}),
          .take = [](std::int64_t bytes) -> void* {
            void* memory = nullptr;
            const cudaError_t result = cudaMalloc(&memory, static_cast<size_t>(bytes));
            if (result == cudaErrorMemoryAllocation) {
              static_cast<void>(cudaGetLastError());
              return nullptr;
            }
            CheckCuda(result, "cudaMalloc");
            return memory;
          },
          .give_back = [](void* memory) { static_cast<void>(cudaFree(memory)); },
          // Not for the whole device, nor on a stream that is being recorded.
          .wait = [&runtime] { runtime.own_queue().Synchronize(); }};
}

}  // namespace

CudaRuntime::CudaRuntime(int index) : index_(index) {
  UseCudaDevice(index);
  cudaDeviceProp properties;
  STEPNET_CUDA_CALL(cudaGetDeviceProperties(&properties, index));
  if (properties.major < kMinComputeCapability) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("cuda:", index, ", ", properties.name, ", has compute capability ", properties.major, ".",
                       properties.minor, "; StepNet runs on GPUs from ", kMinComputeCapability, ".0 on"));
  }
  architecture_ = ArchitectureOf(properties);
  num_processors_ = properties.multiProcessorCount;
  launches_early_ = properties.major >= 9;
  description_ = StrCat(properties.name, ", ", num_processors_, " processors");
  size_t free = 0, total = 0;
  STEPNET_CUDA_CALL(cudaMemGetInfo(&free, &total));
  memory_.emplace(MemoryOf(*this), static_cast<std::int64_t>(total));
  queue_ = std::make_unique<CudaQueue>(*this);
  pending_ = std::make_unique<PendingCalls>();
  loaded_code_ = std::make_unique<SharedValues<LoadedCode>>(kMaxUnusedCode);
}

CudaRuntime::~CudaRuntime() = default;

bool CudaRuntime::MayComeEarly(const void* kernel) {
  if (!launches_early_ || kernel == nullptr) return launches_early_;
  const std::lock_guard lock(waiting_mutex_);
  const auto [found, is_new] = waiting_.try_emplace(kernel, false);
  if (is_new) {
    cudaFuncAttributes code = {};
    found->second = cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= kPtxThatWaits;
    static_cast<void>(cudaGetLastError());
  }
  return found->second;
}

namespace {

// What the thread watches, or records, of any device.
struct Watched {
  std::string* refusal = nullptr;  // null: nothing
  CudaQueue* recorded = nullptr;
  KeptForGraphs* kept = nullptr;
};
thread_local Watched watched;

void Refuse(std::string_view why) {
  if (watched.refusal != nullptr && watched.refusal->empty()) *watched.refusal = why;
}

// When a recording is played, the host gives nothing and waits for nothing.
void MeetHost(std::string_view how) {
  Refuse(how);
  if (watched.recorded != nullptr) throw Error(ErrorCode::kFailed, "a run that is recorded needs the host");
}

}  // namespace

// What is played finds memory that it took, or gave back, in other hands.
void* CudaRuntime::Allocate(std::int64_t bytes) {
  Refuse("it takes memory of the device");
  NoteMemoryChange();
  const std::lock_guard lock(mutex_);
  UseCudaDevice(index_);
  return memory_->Allocate(bytes);
}

void CudaRuntime::Free(void* memory, std::int64_t bytes) noexcept {
  Refuse("it gives memory of the device back");
  NoteMemoryChange();
  const std::lock_guard lock(mutex_);
  memory_->Free(memory, bytes);
}

Queue& CudaRuntime::queue() {
  const bool is_recorded = watched.recorded != nullptr && &watched.recorded->runtime() == this;
  return is_recorded ? *watched.recorded : *queue_;
}

CudaRuntime::WatchedScope::WatchedScope(std::string* refusal, CudaQueue* recorded, KeptForGraphs* kept)
    : recorded_(recorded),
      refusal_before_(watched.refusal),
      recorded_before_(watched.recorded),
      kept_before_(watched.kept) {
  if (recorded_ != nullptr) recorded_->is_recorded_ = true;
  watched = {.refusal = refusal, .recorded = recorded, .kept = kept};
}

CudaRuntime::WatchedScope::~WatchedScope() {
  if (recorded_ != nullptr) recorded_->is_recorded_ = false;
  watched = {.refusal = refusal_before_, .recorded = recorded_before_, .kept = kept_before_};
}

void KeepForGraph(const std::shared_ptr<const void>& what) {
  if (watched.kept != nullptr) watched.kept->insert(what);
}

void CudaRuntime::WhenDone(std::function<void()> then) noexcept {
  const DeviceOfThread thread;
  pending_->Add(std::move(then), *queue_);
}

std::shared_ptr<void> CudaRuntime::MakeCurrent() { return std::make_shared<DeviceOfThread>(index_); }

std::unique_ptr<Recorder> CudaRuntime::MakeRecorder() { return std::make_unique<CudaRecorder>(*this); }

MemoryUse CudaRuntime::memory() const {
  const std::lock_guard lock(mutex_);
  return memory_->use();
}

std::int64_t CudaRuntime::num_host_waits() const { return host_waits_; }

std::vector<std::string> CudaRuntime::Choices() const { return SharedProductChoices().Texts(index_); }

CodeUse CudaRuntime::code() const {
  const SharedValues<LoadedCode>::Counts counts = loaded_code_->counts();
  return {.in_use = counts.held, .unused = counts.unused, .loaded = counts.made};
}

std::unique_ptr<ActivityLog> CudaRuntime::LogActivities() { return MakeCuptiLog(); }

std::unique_ptr<LateFaults> CudaRuntime::MakeLateFaults() { return std::make_unique<DeviceLateFaults>(*this); }

void CudaRuntime::SetMemoryLimit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  UseCudaDevice(index_);
  memory_->SetLimit(bytes);
}

CudaClock::~CudaClock() {
  for (const Pending& pending : pending_) unused_.push_back(pending.event);
  if (last_ != nullptr) unused_.push_back(last_);
  for (const cudaEvent_t event : unused_) static_cast<void>(cudaEventDestroy(event));
}

cudaEvent_t CudaClock::TakeEvent() {
  cudaEvent_t event = nullptr;
  if (unused_.empty()) {
    STEPNET_CUDA_CALL(cudaEventCreate(&event));
    return event;
  }
  event = unused_.back();
  unused_.pop_back();
  return event;
}

std::shared_ptr<const double> CudaClock::Mark(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (last_ == nullptr) {  // where both clocks stand
    const cudaEvent_t first = TakeEvent();
    STEPNET_CUDA_CALL(cudaEventRecord(first, stream));
    STEPNET_CUDA_CALL(cudaEventSynchronize(first));
    last_time_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    last_ = first;
  }
  // So many may be on their way: events take memory of the driver.
  constexpr size_t kMaxPending = 4096;
  if (pending_.size() >= kMaxPending) {
    STEPNET_CUDA_CALL(cudaEventSynchronize(pending_[kMaxPending / 2 - 1].event));
    ResolveFirst(kMaxPending / 2);
  }
  const cudaEvent_t event = TakeEvent();
  STEPNET_CUDA_CALL(cudaEventRecord(event, stream));
  pending_.push_back({.event = event, .time = std::make_shared<double>(0)});
  return pending_.back().time;
}

// From one event to the next: a difference is a float, which holds long times less exactly.
void CudaClock::ResolveFirst(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float milliseconds = 0;
    const cudaError_t result = cudaEventElapsedTime(&milliseconds, last_, pending_.front().event);
    if (result == cudaErrorNotReady) {  // another thread has just put it in
      static_cast<void>(cudaGetLastError());
      return;
    }
    CheckCuda(result, "cudaEventElapsedTime");
    last_time_ += 1e-3 * milliseconds;
    *pending_.front().time = last_time_;
    unused_.push_back(std::exchange(last_, pending_.front().event));
    pending_.pop_front();
  }
}

void CudaClock::Resolve() {
  const std::lock_guard lock(mutex_);
  ResolveFirst(pending_.size());
}

CudaQueue::CudaQueue(CudaRuntime& runtime, bool comes_first) : runtime_(runtime) {
  int last = 0, first = 0;
  STEPNET_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&last, &first));
  STEPNET_CUDA_CALL(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, comes_first ? first : last));
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

void CudaQueue::Add(const void* from, void* to, DType dtype, std::int64_t count) { AddEach(from, to, dtype, count, 1); }

void CudaQueue::CopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count) {
  UseCudaDevice(runtime_.index());
  CheckCuda(LaunchCopyToEach(from, to, bytes, count, stream_), "copy to each");
}

void CudaQueue::AddEach(const void* from, void* to, DType dtype, std::int64_t size, std::int64_t count) {
  UseCudaDevice(runtime_.index());
  if (dtype == DType::kDouble) {
    CheckCuda(LaunchAddEach(static_cast<const double*>(from), static_cast<double*>(to), size, count, stream_), "add");
  } else if (dtype == DType::kFloat) {
    CheckCuda(LaunchAddEach(static_cast<const float*>(from), static_cast<float*>(to), size, count, stream_), "add");
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
    ++runtime_.host_waits_;
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
  MeetHost("it copies from the host");
  const std::lock_guard lock(mutex_);
  constexpr std::int64_t kPiece = 8 << 20;  // with kMaxStaging a bound on memory that the system cannot move
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
  const PendingCalls::WaitScope ready(*runtime_.pending_);
  UseCudaDevice(runtime_.index());
  MeetHost("it copies to the host");
  if (bytes > 0) {
    STEPNET_CUDA_CALL(cudaMemcpyAsync(to_host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
  }
  Synchronize();
}

std::shared_ptr<const double> CudaQueue::MarkTime() {
  UseCudaDevice(runtime_.index());
  return clock_.Mark(stream_);
}

void CudaQueue::Wait() {
  const PendingCalls::WaitScope ready(*runtime_.pending_);
  Synchronize();
}

void CudaQueue::Synchronize() {
  UseCudaDevice(runtime_.index());
  MeetHost("it waits for the device");
  ++runtime_.host_waits_;
  STEPNET_CUDA_CALL(cudaStreamSynchronize(stream_));
  clock_.Resolve();
}

namespace {

// The stream of a number. What is captured is done later, if ever: no other stream can be ordered by it.
cudaStream_t StreamOf(StreamId id) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what DLPack makes of it
  const auto stream = reinterpret_cast<cudaStream_t>(id);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  STEPNET_CUDA_CALL(cudaStreamIsCapturing(stream, &status));
  if (status == cudaStreamCaptureStatusNone) return stream;
  throw Error(ErrorCode::kInvalidArgument,
              "the stream is being captured into a CUDA graph, of which a run cannot be part: it is played as graphs "
              "of its own");
}

}  // namespace

void CudaQueue::WaitFor(StreamId stream) {
  const DeviceOfThread thread(runtime_.index());
  stepnet::WaitFor(EventOf(StreamOf(stream)), *this);
}

void CudaQueue::LetWait(StreamId stream) {
  const DeviceOfThread thread(runtime_.index());
  stepnet::WaitFor(EventOf(*this), StreamOf(stream));
}

void LaunchEarly(const void* kernel, const LaunchShape& shape, void** parameters, const CudaQueue& queue,
                 const char* what) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (queue.runtime().MayComeEarly(shape.is_made_for_gpu ? nullptr : kernel)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  cudaLaunchConfig_t config{.gridDim = shape.blocks,
                            .blockDim = dim3(static_cast<unsigned>(shape.threads)),
                            .dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes),
                            .stream = queue.stream(),
                            .attrs = attributes,
                            .numAttrs = count};
  CheckCuda(cudaLaunchKernelExC(&config, kernel, parameters), what);
}

int NumCudaDevices() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  return result == cudaSuccess ? count : 0;
}

namespace {

std::string VersionText(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

// What the machine lacks.
std::string WhyNoDevices(cudaError_t result) {
  if (result == cudaErrorNoDevice) return "the NVIDIA driver knows no GPU (CUDA_VISIBLE_DEVICES may hide them)";
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  if (result == cudaErrorInsufficientDriver && driver == 0) return "there is no NVIDIA driver (libcuda.so.1)";
  if (result == cudaErrorInsufficientDriver) {
    return StrCat("the NVIDIA driver is of CUDA ", VersionText(driver), ", and this program needs one of CUDA ",
                  VersionText(CUDART_VERSION), " or newer");
  }
  return StrCat(cudaGetErrorString(result), " (", cudaGetErrorName(result), ")");
}

}  // namespace

CudaRuntime& CudaRuntimeOf(int index) {
  static std::mutex mutex;
  static auto& runtimes = *new std::map<int, std::unique_ptr<CudaRuntime>>;  // tensors give memory back late
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaRuntime>& runtime = runtimes[index];
  if (runtime != nullptr) return *runtime;
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::kInvalidArgument, StrCat("no GPU can be used here: ", WhyNoDevices(result)));
  }
  if (index < 0 || index >= count) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("no device cuda:", index, "; there ", count == 1 ? "is 1 GPU" : StrCat("are ", count, " GPUs")));
  }
  LoseDevicesInForkedProcesses();
  OpenCublasLtAhead();  // beside the context
  const DeviceOfThread thread;
  runtime = std::make_unique<CudaRuntime>(index);
  return *runtime;
}

}  // namespace stepnet
