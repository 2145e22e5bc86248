#include "stepnet/gpu/cuda/cupti_log.h"

#include "stepnet/core/error.h"

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "stepnet/core/first_failure.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda_library.h"

namespace stepnet {
namespace {

// The functions that are called, as the library declares them.
struct Cupti {
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiGetGraphNodeId) graph_node_id;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityPushExternalCorrelationId) push_id;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id;
  decltype(&cuptiGetResultString) result_text;
};

Cupti OpenCupti() {
  // Its records are those of the headers: no other version will do.
  const CudaLibrary library =
      OpenCudaLibrary({StrCat("libcupti.so.", CUDA_VERSION / 1000)}, "what GPUs do is told by CUPTI",
                      "NVIDIA's package cuda-cupti-13-0, or nvidia-cuda-cupti from PyPI");
  if (library.handle == nullptr) throw Error(ErrorCode::kFailed, library.fault);
  Cupti cupti = {};
  library.Find("cuptiSubscribe", &cupti.subscribe);
  library.Find("cuptiUnsubscribe", &cupti.unsubscribe);
  library.Find("cuptiEnableCallback", &cupti.enable_callback);
  library.Find("cuptiGetGraphNodeId", &cupti.graph_node_id);
  library.Find("cuptiActivityRegisterTimestampCallback", &cupti.register_clock);
  library.Find("cuptiActivityRegisterCallbacks", &cupti.register_buffers);
  library.Find("cuptiActivityEnable", &cupti.enable);
  library.Find("cuptiActivityDisable", &cupti.disable);
  library.Find("cuptiActivityFlushAll", &cupti.flush);
  library.Find("cuptiActivityGetNextRecord", &cupti.next_record);
  library.Find("cuptiActivityPushExternalCorrelationId", &cupti.push_id);
  library.Find("cuptiActivityPopExternalCorrelationId", &cupti.pop_id);
  library.Find("cuptiGetResultString", &cupti.result_text);
  return cupti;
}

const Cupti& TheCupti() {
  static const Cupti cupti = OpenCupti();
  return cupti;
}

void Check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  static_cast<void>(TheCupti().result_text(result, &text));
  throw Error(ErrorCode::kFailed, StrCat(call, ": ", text == nullptr ? "failed" : text));
}

double Seconds(std::uint64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

std::uint64_t Clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Returns what its source calls it.
std::string NameOf(const char* kernel) {
  if (kernel == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(abi::__cxa_demangle(kernel, nullptr, nullptr, &status),
                                                             &std::free);
  return status == 0 ? readable.get() : kernel;
}

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
    // A tag goes with the call, which has a number that the activity has, too.
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
constexpr CUpti_CallbackIdResource kCallbacks[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                                   CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
constexpr CUpti_ExternalCorrelationKind kTags = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

thread_local std::int64_t tag_of_thread = DeviceActivity::kNoTag;

class CuptiLog : public ActivityLog {
 public:
  CuptiLog() : cupti_(TheCupti()) {
    {
      const std::lock_guard lock(mutex_);
      if (current_ != nullptr) throw Error(ErrorCode::kFailed, "another log of this process has CUPTI");
      current_ = this;
    }
    try {
      Begin();
    } catch (...) {
      End();
      throw;
    }
  }
  ~CuptiLog() override { End(); }
  CuptiLog(const CuptiLog&) = delete;
  CuptiLog& operator=(const CuptiLog&) = delete;

  void SetTag(std::int64_t tag) override {
    if (tag == tag_of_thread) return;
    std::uint64_t before = 0;
    if (tag_of_thread != DeviceActivity::kNoTag) static_cast<void>(cupti_.pop_id(kTags, &before));
    if (tag != DeviceActivity::kNoTag) static_cast<void>(cupti_.push_id(kTags, static_cast<std::uint64_t>(tag)));
    tag_of_thread = tag;
  }

  std::vector<DeviceActivity> Take() override {
    Check(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    failure_.Rethrow();
    const std::lock_guard lock(mutex_);
    std::vector<DeviceActivity> taken;
    for (Noted& noted : noted_) {
      const bool is_played = noted.node != 0;
      const auto& tags = is_played ? tag_of_node_ : tag_of_call_;
      const auto found = tags.find(is_played ? noted.node : noted.call);
      noted.activity.is_played = is_played;
      if (found != tags.end()) noted.activity.tag = found->second;
      taken.push_back(std::move(noted.activity));
    }
    noted_.clear();
    tag_of_call_.clear();
    std::ranges::sort(taken, {}, &DeviceActivity::begin);
    return taken;
  }
  std::int64_t left_out() const override {
    const std::lock_guard lock(mutex_);
    return std::max<std::int64_t>(0, num_done_ - kMaxActivities);
  }

 private:
  struct Noted {
    DeviceActivity activity;
    std::uint64_t call = 0;
    std::uint64_t node = 0;  // of a graph; 0: of none
  };

  void Begin() {
    Check(cupti_.subscribe(&subscriber_, &OnGraphNode, nullptr), "cuptiSubscribe");
    for (const CUpti_CallbackIdResource id : kCallbacks) {
      Check(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id), "cuptiEnableCallback");
    }
    Check(cupti_.register_clock(&Clock), "cuptiActivityRegisterTimestampCallback");
    Check(cupti_.register_buffers(&LendBuffer, &TakeBuffer), "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : kKinds) Check(cupti_.enable(kind), "cuptiActivityEnable");
  }

  void End() {
    SetTag(DeviceActivity::kNoTag);
    for (const CUpti_ActivityKind kind : kKinds) static_cast<void>(cupti_.disable(kind));
    static_cast<void>(cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    if (subscriber_ != nullptr) static_cast<void>(cupti_.unsubscribe(subscriber_));
    const std::lock_guard lock(mutex_);
    current_ = nullptr;
  }

  // Nodes of graphs get the tag of the thread that records them, and copies of nodes that of the original.
  static void CUPTIAPI OnGraphNode(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
    const auto* const graph =
        static_cast<const CUpti_GraphData*>(static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
    const bool is_copy = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
    std::uint64_t node = 0, original = 0;
    if (TheCupti().graph_node_id(graph->node, &node) != CUPTI_SUCCESS) return;
    if (is_copy && TheCupti().graph_node_id(graph->originalNode, &original) != CUPTI_SUCCESS) return;
    Tell([&](CuptiLog& log) { log.NoteNode(node, is_copy ? &original : nullptr); });
  }

  // Calls tell(log), if there is still one, which is told why where there is no memory for it.
  template <typename TellLog>
  static void Tell(const TellLog& tell) noexcept {
    const std::lock_guard lock(mutex_);
    if (current_ == nullptr) return;
    try {
      tell(*current_);
    } catch (...) {
      current_->failure_.Note();
    }
  }

  void NoteNode(std::uint64_t node, const std::uint64_t* original) {
    std::int64_t tag = tag_of_thread;
    if (original != nullptr) {
      const auto found = tag_of_node_.find(*original);
      tag = found == tag_of_node_.end() ? DeviceActivity::kNoTag : found->second;
    }
    if (tag != DeviceActivity::kNoTag) tag_of_node_[node] = tag;
  }

  static void CUPTIAPI LendBuffer(std::uint8_t** buffer, size_t* size, size_t* max_records) {
    constexpr size_t kBytes = 1 << 20;
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBytes));
    *size = *buffer == nullptr ? 0 : kBytes;
    *max_records = 0;  // as many as there is room for
  }

  static void CUPTIAPI TakeBuffer(CUcontext, std::uint32_t, std::uint8_t* buffer, size_t, size_t bytes) {
    Tell([&](CuptiLog& log) {
      CUpti_Activity* record = nullptr;
      while (TheCupti().next_record(buffer, bytes, &record) == CUPTI_SUCCESS) log.Note(record);
    });
    std::free(buffer);
  }

  void Note(const CUpti_Activity* record) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        return NoteDone(kernel, NameOf(kernel.name), 0);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        return NoteDone(copy, "copy", copy.bytes);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        return NoteDone(fill, "fill", fill.bytes);
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& tagged = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
        tag_of_call_[tagged.correlationId] = static_cast<std::int64_t>(tagged.externalId);
        return;
      }
      default: return;  // calls of the host
    }
  }

  template <typename Record>
  void NoteDone(const Record& record, std::string name, std::uint64_t bytes) {
    if (++num_done_ > kMaxActivities) return;
    noted_.push_back({.activity = {.name = std::move(name),
                                   .bytes = static_cast<std::int64_t>(bytes),
                                   .device = {DeviceKind::kCuda, static_cast<std::int16_t>(record.deviceId)},
                                   .stream = record.streamId,
                                   .begin = Seconds(record.start),
                                   .end = Seconds(record.end)},
                      .call = record.correlationId,
                      .node = record.graphNodeId});
  }

  const Cupti& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  // CUPTI's callbacks get nothing of ours, come from threads of its own, and may come late.
  static inline std::mutex mutex_;  // for what follows
  static inline CuptiLog* current_ = nullptr;
  FirstFailure failure_;
  std::vector<Noted> noted_;
  std::int64_t num_done_ = 0;
  std::unordered_map<std::uint64_t, std::int64_t> tag_of_call_, tag_of_node_;
};

}  // namespace

std::unique_ptr<ActivityLog> MakeCuptiLog() { return std::make_unique<CuptiLog>(); }

}  // namespace stepnet

#else

namespace stepnet {

std::unique_ptr<ActivityLog> MakeCuptiLog() {
  throw Error(ErrorCode::kFailed, "this program was built where there were no headers of CUPTI");
}

}  // namespace stepnet

#endif
