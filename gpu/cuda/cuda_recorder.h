// CudaRecorder: work as a CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "stepnet/core/run_context.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

// The first time work is done as it is: kernels are compiled, algorithms chosen, and temporary memory grows to what is
// needed. The second time it is recorded, and from then on played. Work that meets the host while it is recorded (for
// bytes, for the number of a run, for memory) would do something else when it is played: it is done as it is each time.
class CudaRecorder {
 public:
  explicit CudaRecorder(CudaRuntime& runtime) : runtime_(runtime) {}
  // Does `work`, or plays it. `key` is all that decides about what it puts into queues: memory, shapes. The context is
  // the one that it uses.
  void Run(const std::vector<const void*>& key, RunContext& context, const std::function<void()>& work);

  const std::vector<const void*>& key() const { return key_; }

 private:
  // False where it would be something else; it is not done then.
  bool Record(RunContext& context, const std::function<void()>& work);
  void Play(const RunContext& context);

  struct GraphDelete {
    void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
  };
  CudaRuntime& runtime_;
  std::vector<const void*> key_;
  RunReaders readers_;
  std::unique_ptr<CUgraphExec_st, GraphDelete> graph_;
  bool checks_values_ = false;  // and notes faults in the record of the context
  int num_refused_ = 0;
};

}  // namespace stepnet
