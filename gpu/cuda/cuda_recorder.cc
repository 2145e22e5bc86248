#include "stepnet/gpu/cuda/cuda_recorder.h"

#include <utility>

#include "stepnet/gpu/cuda/cuda_call.h"

namespace stepnet {
namespace {

struct GraphDelete {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDelete>;

}  // namespace

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
  // Relaxed: other threads go on with their calls, and this one may compile kernels.
  STEPNET_CUDA_CALL(cudaStreamBeginCapture(queue.stream(), cudaStreamCaptureModeRelaxed));
  try {
    const CudaRuntime::WatchedScope recorded(refusal, &queue);
    work();
  } catch (...) {
    static_cast<void>(end());
    static_cast<void>(cudaGetLastError());
    throw;
  }
  const auto [result, graph] = end();
  CheckCuda(result, "cudaStreamEndCapture");
  if (!refusal->empty()) return;
  cudaGraphExec_t made = nullptr;
  STEPNET_CUDA_CALL(cudaGraphInstantiate(&made, graph.get(), 0));
  graph_.reset(made);
}

void CudaRecorder::Play() {
  UseCudaDevice(runtime_.index());
  STEPNET_CUDA_CALL(cudaGraphLaunch(graph_.get(), runtime_.own_queue().stream()));
}

}  // namespace stepnet
