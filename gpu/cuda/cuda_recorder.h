// CudaRecorder: work as a CUDA graph. What is in several lanes is recorded from a stream each.
#pragma once

#include <memory>

#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

class CudaRecorder : public Recorder {
 public:
  explicit CudaRecorder(CudaRuntime& runtime) : runtime_(runtime) {}
  void Watch(const std::function<void()>& work, std::string* refusal) override;
  void Record(const std::function<void()>& work, std::string* refusal) override;
  void Play() override;
  int num_lanes() const override { return kMaxLanes; }
  void InLane(int lane, std::span<const int> behind, const std::function<void()>& work) override;

 private:
  static constexpr int kMaxLanes = 4;
  class Lanes;
  struct GraphDelete {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  CudaRuntime& runtime_;
  Lanes* lanes_ = nullptr;  // while it records
  std::unique_ptr<CUgraphExec_st, GraphDelete> graph_;
};

}  // namespace stepnet
