#include "stepnet/gpu/cuda/cuda_recorder.h"

#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/gpu/cuda/cuda_call.h"

namespace stepnet {
namespace {

// Memory that work still allocates is there the next time.
constexpr int kMaxRefused = 3;

struct GraphDelete {
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDelete>;

std::int64_t NumChecks(const RunContext& context) {
  return context.late_faults == nullptr ? 0 : context.late_faults->num_kernels();
}

}  // namespace

void CudaRecorder::Run(const std::vector<const void*>& key, RunContext& context, const std::function<void()>& work) {
  const bool is_same = key == key_;
  const ScopedValue<RunReaders*> readers(context.readers, &readers_);
  if (is_same) readers_.Set(context.run == nullptr ? 0 : *context.run, runtime_.queue());
  if (is_same && graph_ != nullptr) return Play(context);
  graph_.reset();
  if (is_same && num_refused_ < kMaxRefused) {
    if (Record(context, work)) return Play(context);
    ++num_refused_;
  }
  if (!is_same) num_refused_ = 0;
  key_ = key;
  readers_ = {};
  work();
}

bool CudaRecorder::Record(RunContext& context, const std::function<void()>& work) {
  const std::int64_t num_checks = NumChecks(context);
  readers_.is_known = true;
  CudaQueue queue(runtime_);  // into which no other thread puts work
  const auto end = [&] {
    cudaGraph_t made = nullptr;
    const cudaError_t result = cudaStreamEndCapture(queue.stream(), &made);
    return std::pair(result, Graph(made));
  };
  STEPNET_CUDA_CALL(cudaStreamBeginCapture(queue.stream(), cudaStreamCaptureModeRelaxed));
  try {
    const CudaRuntime::RecordedScope recorded(queue);
    const ScopedValue<Queue*> lent(context.queue, &queue);
    work();
  } catch (...) {
    static_cast<void>(end());
    static_cast<void>(cudaGetLastError());
    if (queue.is_refused()) return false;  // what was thrown may come of that
    throw;
  }
  const auto [result, graph] = end();
  CheckCuda(result, "cudaStreamEndCapture");
  if (queue.is_refused() || !readers_.is_known) return false;
  checks_values_ = NumChecks(context) > num_checks;
  cudaGraphExec_t made = nullptr;
  STEPNET_CUDA_CALL(cudaGraphInstantiate(&made, graph.get(), 0));
  graph_.reset(made);
  return true;
}

void CudaRecorder::Play(const RunContext& context) {
  CheckCancelled();
  STEPNET_CUDA_CALL(cudaGraphLaunch(graph_.get(), static_cast<CudaQueue&>(runtime_.queue()).stream()));
  if (checks_values_) context.late_faults->SetPending();
}

}  // namespace stepnet
