// CudaRecorder: work as a CUDA graph, or several, one for each piece. What is in several lanes is recorded from a
// stream each. The driver takes several times as long to make a graph that can be played as it takes to record one: of
// the only piece that happens on a thread of its own, and until it is done there are no pieces. Each of several is made
// when it ends, before the next one takes memory.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include "stepnet/gpu/cuda/cuda_event.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda_target.h"

namespace stepnet {

class CudaRecorder : public Recorder {
 public:
  explicit CudaRecorder(CudaRuntime& runtime) : runtime_(runtime) {}
  void Watch(const std::function<void()>& work, std::string* refusal) override;
  void Record(const std::function<void()>& work, std::string* refusal) override;
  void Cut() override;
  // Throws why the only one could not be made.
  int num_pieces() const override;
  void Play(int piece) override;
  int num_lanes() const override { return kMaxCudaLanes; }
  void InLane(int lane, std::span<const int> behind, const std::function<void()>& work) override;

 private:
  class Capture;
  class Lanes;
  struct GraphDelete {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, GraphDelete>;
  using Piece = std::shared_future<Graph>;
  CudaRuntime& runtime_;
  Capture* capture_ = nullptr;  // while it records
  KeptForGraphs kept_;          // by pieces_, which go first
  std::vector<Piece> pieces_;
  CudaEvent last_played_;  // the end of that piece
};

}  // namespace stepnet
