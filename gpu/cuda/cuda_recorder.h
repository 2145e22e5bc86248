// CudaRecorder: work as a CUDA graph.
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

 private:
  struct GraphDelete {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  CudaRuntime& runtime_;
  std::unique_ptr<CUgraphExec_st, GraphDelete> graph_;
};

}  // namespace stepnet
