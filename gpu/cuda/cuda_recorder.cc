#include "stepnet/gpu/cuda/cuda_recorder.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/core/recording_times.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/gpu/cuda/cuda_event.h"

namespace stepnet {
namespace {

struct GraphDelete {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDelete>;

// Seconds since it was made, or asked last.
class LapClock {
 public:
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

cudaGraphExec_t Instantiated(cudaGraph_t graph) {
  cudaGraphExec_t made = nullptr;
  STEPNET_CUDA_CALL(cudaGraphInstantiate(&made, graph, 0));
  return made;
}

std::int64_t NumNodes(cudaGraph_t graph) {
  size_t count = 0;
  STEPNET_CUDA_CALL(cudaGraphGetNodes(graph, nullptr, &count));
  return static_cast<std::int64_t>(count);
}

}  // namespace

// Streams beside the one that is recorded, which join its capture.
class CudaRecorder::Lanes {
 public:
  Lanes(CudaQueue& first, std::string* refusal)
      : first_(first), refusal_(refusal), begun_(EventOf(first)), others_(kMaxLanes - 1) {}

  void Put(int lane, std::span<const int> behind, const std::function<void()>& work) {
    CudaQueue& queue = QueueOf(lane);
    for (const int call : behind) WaitFor(ends_.at(call), queue);
    if (lane == 0) {
      work();
    } else {
      const CudaRuntime::WatchedScope recorded(refusal_, &queue);
      work();
    }
    ends_.push_back(EventOf(queue));
  }

  void Join() const {
    for (const std::unique_ptr<CudaQueue>& other : others_) {
      if (other != nullptr) WaitFor(EventOf(*other), first_);
    }
  }

 private:
  CudaQueue& QueueOf(int lane) {
    if (lane == 0) return first_;
    std::unique_ptr<CudaQueue>& other = others_.at(lane - 1);
    if (other == nullptr) {
      other = std::make_unique<CudaQueue>(first_.runtime());
      WaitFor(begun_, *other);
    }
    return *other;
  }

  CudaQueue& first_;
  std::string* const refusal_;
  const CudaEvent begun_;
  std::vector<std::unique_ptr<CudaQueue>> others_;
  std::vector<CudaEvent> ends_;  // of the calls
};

void CudaRecorder::InLane(int lane, std::span<const int> behind, const std::function<void()>& work) {
  lanes_ == nullptr ? work() : lanes_->Put(lane, behind, work);
}

void CudaRecorder::Watch(const std::function<void()>& work, std::string* refusal) {
  const CudaRuntime::WatchedScope watched(refusal);
  work();
}

void CudaRecorder::Record(const std::function<void()>& work, std::string* refusal) {
  graph_.reset();
  UseCudaDevice(runtime_.index());
  CudaQueue queue(runtime_);  // into which no other thread puts work
  const auto end = [&] {
    cudaGraph_t made = nullptr;
    const cudaError_t result = cudaStreamEndCapture(queue.stream(), &made);
    return std::pair(result, Graph(made));
  };
  RecordingTimes times;
  LapClock clock;
  // Relaxed: other threads go on with their calls, and this one may compile kernels.
  STEPNET_CUDA_CALL(cudaStreamBeginCapture(queue.stream(), cudaStreamCaptureModeRelaxed));
  std::optional<Lanes> lanes;  // streams are not to end while they are recorded
  try {
    const CudaRuntime::WatchedScope recorded(refusal, &queue);
    lanes.emplace(queue, refusal);
    const ScopedValue<Lanes*> lent(lanes_, &*lanes);
    times.capture_seconds += clock.Lap();
    work();
    times.host_seconds += clock.Lap();
    lanes->Join();
  } catch (...) {
    static_cast<void>(end());
    static_cast<void>(cudaGetLastError());
    throw;
  }
  const auto [result, graph] = end();
  CheckCuda(result, "cudaStreamEndCapture");
  if (!refusal->empty()) return;
  times.capture_seconds += clock.Lap();
  graph_.reset(Instantiated(graph.get()));
  // Otherwise the first time that it is played would bring it there.
  STEPNET_CUDA_CALL(cudaGraphUpload(graph_.get(), runtime_.own_queue().stream()));
  times.instantiate_seconds += clock.Lap();
  times.nodes = NumNodes(graph.get());
  AddRecording(times);
}

void CudaRecorder::Play() {
  UseCudaDevice(runtime_.index());
  STEPNET_CUDA_CALL(cudaGraphLaunch(graph_.get(), runtime_.own_queue().stream()));
}

}  // namespace stepnet
