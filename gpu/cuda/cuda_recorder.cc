#include "stepnet/gpu/cuda/cuda_recorder.h"

#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "stepnet/core/recording_times.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/signal_block.h"
#include "stepnet/gpu/cuda/cuda_event.h"

namespace stepnet {
namespace {

struct GraphDelete {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using Captured = std::unique_ptr<CUgraph_st, GraphDelete>;

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

std::int64_t NumNodes(cudaGraph_t graph) {
  size_t count = 0;
  STEPNET_CUDA_CALL(cudaGraphGetNodes(graph, nullptr, &count));
  return static_cast<std::int64_t>(count);
}

}  // namespace

// Streams beside the one that is recorded, which join its capture.
class CudaRecorder::Lanes {
 public:
  Lanes(CudaQueue& first, std::string* refusal, KeptForGraphs* kept)
      : first_(first), refusal_(refusal), kept_(kept), others_(kMaxCudaLanes - 1) {}

  void Put(int lane, std::span<const int> behind, const std::function<void()>& work) {
    lane_ = lane;
    CudaQueue& queue = QueueOf(lane);
    for (const int call : behind) {
      if (ends_.at(call) != nullptr) WaitFor(ends_.at(call), queue);
    }
    if (lane == 0) {
      work();
    } else {
      const CudaRuntime::WatchedScope recorded(refusal_, &queue, kept_);
      work();
    }
    ends_.push_back(EventOf(queue));
    lane_ = 0;
  }

  // When a capture has begun. The lane whose work goes on is part of it again; what calls of the one before have put in
  // is done.
  void Begin() {
    begun_ = EventOf(first_);
    for (CudaEvent& end : ends_) end.reset();
    static_cast<void>(QueueOf(lane_));
  }

  // Before it ends.
  void Join() {
    for (Other& other : others_) {
      if (std::exchange(other.is_captured, false)) WaitFor(EventOf(*other.queue), first_);
    }
  }

 private:
  struct Other {
    std::unique_ptr<CudaQueue> queue;
    bool is_captured = false;
  };

  CudaQueue& QueueOf(int lane) {
    if (lane == 0) return first_;
    Other& other = others_.at(lane - 1);
    if (other.queue == nullptr) other.queue = std::make_unique<CudaQueue>(first_.runtime());
    if (!std::exchange(other.is_captured, true)) WaitFor(begun_, *other.queue);
    return *other.queue;
  }

  CudaQueue& first_;
  std::string* const refusal_;
  KeptForGraphs* const kept_;
  CudaEvent begun_;
  std::vector<Other> others_;
  std::vector<CudaEvent> ends_;  // of the calls; null where they come before this capture
  int lane_ = 0;                 // into which work is put
};

// What a thread puts in, as graphs.
class CudaRecorder::Capture {
 public:
  Capture(CudaRuntime& runtime, std::string* refusal)
      : runtime_(runtime), refusal_(refusal), queue_(runtime), lanes_(queue_, refusal, &kept_) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (!is_under_way_) return;  // nothing was thrown
    static_cast<void>(End());
    static_cast<void>(cudaGetLastError());
  }

  CudaQueue& queue() { return queue_; }
  Lanes& lanes() { return lanes_; }
  KeptForGraphs& kept() { return kept_; }

  void Begin() {
    // Relaxed: other threads go on with their calls, and this one may compile kernels.
    STEPNET_CUDA_CALL(cudaStreamBeginCapture(queue_.stream(), cudaStreamCaptureModeRelaxed));
    is_under_way_ = true;
    lanes_.Begin();
    times_.capture_seconds += clock_.Lap();
  }
  void Cut() {
    EndPiece(/*is_last=*/false);
    Begin();
  }
  // Ends the last piece. Empty where there is a refusal.
  std::vector<Piece> Finish() {
    EndPiece(/*is_last=*/true);
    if (!refusal_->empty()) return {};
    times_.recordings = 1;
    AddRecordingTimes(times_);
    return std::move(pieces_);
  }

 private:
  std::pair<cudaError_t, Captured> End() {
    is_under_way_ = false;
    cudaGraph_t made = nullptr;
    const cudaError_t result = cudaStreamEndCapture(queue_.stream(), &made);
    return {result, Captured(made)};
  }

  void EndPiece(bool is_last) {
    times_.host_seconds += clock_.Lap();
    lanes_.Join();
    auto [result, captured] = End();
    CheckCuda(result, "cudaStreamEndCapture");
    if (!refusal_->empty()) return;
    ++times_.graphs;
    times_.nodes += NumNodes(captured.get());
    times_.capture_seconds += clock_.Lap();
    const bool is_only = is_last && pieces_.empty();
    pieces_.push_back(MakePiece(std::move(captured), is_only));
    static_cast<void>(clock_.Lap());
  }

  // Makes the only piece on a thread of its own, where there is one to be had; who lets go of it waits.
  Piece MakePiece(Captured captured, bool is_only) const {
    const auto shared = std::make_shared<Captured>(std::move(captured));
    const auto make = [&runtime = runtime_, shared] {
      Graph graph = MakeGraph(runtime, shared->get());
      shared->reset();
      return graph;
    };
    if (is_only) {
      const SignalBlock none;
      try {
        return std::async(std::launch::async, make).share();
      } catch (const std::system_error&) {
      }
    }
    std::promise<Graph> made;
    made.set_value(make());
    return made.get_future().share();
  }

  // As a graph that kernels could launch, too, where it may be one: all of that lies on the GPU, and to play it takes
  // the host the same few microseconds however many nodes there are.
  static cudaGraphExec_t Instantiate(cudaGraph_t captured) {
    cudaGraphExec_t made = nullptr;
    if (cudaGraphInstantiate(&made, captured, cudaGraphInstantiateFlagDeviceLaunch) == cudaSuccess) return made;
    static_cast<void>(cudaGetLastError());
    STEPNET_CUDA_CALL(cudaGraphInstantiate(&made, captured, 0));
    return made;
  }

  static Graph MakeGraph(CudaRuntime& runtime, cudaGraph_t captured) {
    LapClock clock;
    UseCudaDevice(runtime.index());
    Graph graph(Instantiate(captured));
    // Otherwise the first time that it is played would bring it there.
    STEPNET_CUDA_CALL(cudaGraphUpload(graph.get(), runtime.own_queue().stream()));
    AddRecordingTimes({.instantiate_seconds = clock.Lap()});
    return graph;
  }

  CudaRuntime& runtime_;
  std::string* const refusal_;
  KeptForGraphs kept_;  // by the graphs that are made, which go first
  CudaQueue queue_;     // into which no other thread puts work
  Lanes lanes_;         // streams are not to end while they are recorded
  bool is_under_way_ = false;
  LapClock clock_;
  RecordingTimes times_;
  std::vector<Piece> pieces_;
};

void CudaRecorder::InLane(int lane, std::span<const int> behind, const std::function<void()>& work) {
  capture_ == nullptr ? work() : capture_->lanes().Put(lane, behind, work);
}

void CudaRecorder::Cut() {
  if (capture_ != nullptr) capture_->Cut();
}

void CudaRecorder::Watch(const std::function<void()>& work, std::string* refusal) {
  const CudaRuntime::WatchedScope watched(refusal);
  work();
}

void CudaRecorder::Record(const std::function<void()>& work, std::string* refusal) {
  pieces_.clear();
  kept_.clear();
  UseCudaDevice(runtime_.index());
  Capture capture(runtime_, refusal);
  capture.Begin();
  {
    const CudaRuntime::WatchedScope recorded(refusal, &capture.queue(), &capture.kept());
    const ScopedValue<Capture*> lent(capture_, &capture);
    work();
  }
  pieces_ = capture.Finish();
  if (!pieces_.empty()) kept_ = std::move(capture.kept());
}

int CudaRecorder::num_pieces() const {
  constexpr std::chrono::seconds kAtOnce(0);
  if (pieces_.empty() || pieces_.back().wait_for(kAtOnce) != std::future_status::ready) return 0;
  static_cast<void>(pieces_.back().get());  // throws
  return static_cast<int>(pieces_.size());
}

void CudaRecorder::Play(int piece) {
  UseCudaDevice(runtime_.index());
  const CudaQueue& queue = runtime_.own_queue();
  STEPNET_CUDA_CALL(cudaGraphLaunch(pieces_[piece].get().get(), queue.stream()));
  if (piece + 1 == num_pieces()) return last_played_.reset();
  const CudaEvent before = std::exchange(last_played_, EventOf(queue, cudaEventBlockingSync));
  if (piece == 0) return;
  runtime_.CountHostWait();
  STEPNET_CUDA_CALL(cudaEventSynchronize(before.get()));
}

}  // namespace stepnet
