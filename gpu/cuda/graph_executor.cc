// The executors of the GPU. "serial" puts the steps of a plan into the stream, one instruction after the other.
// "cuda" does so the first time; the second time it records them as a CUDA graph, and from then on plays that: what the
// host does for a run no longer grows with its steps.
#include <algorithm>
#include <memory>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/executor/executor.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {
namespace {

void RunOnStream(RunState& state, RunContext& context) {
  for (const Stage& stage : state.plan().stages) RunSerially(state, stage, 0, state.num_steps(), context);
}

// The steps of a run on memory at these addresses.
class Recording {
 public:
  explicit Recording(std::vector<const void*> addresses) : addresses_(std::move(addresses)) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() {
    if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
  }

  const std::vector<const void*>& addresses() const { return addresses_; }

  void Run(RunState& state, const RunContext& context) {
    auto& queue = static_cast<CudaQueue&>(*context.queue);
    context_.run = context.run;
    if (is_warm_ && graph_ == nullptr && !is_refused_) Make(state, queue.runtime());
    if (graph_ != nullptr) {
      CheckCancelled();
      STEPNET_CUDA_CALL(cudaGraphLaunch(graph_, queue.stream()));
      return;
    }
    // The first time kernels are compiled, algorithms are chosen, and temporary memory grows to what is needed.
    context_.UseDevice(state.device());
    RunOnStream(state, context_);
    context_.ResetScratch();
    is_warm_ = true;
  }

 private:
  // Refuses to record what would be something else when it is played again: kernels that were given the number of the
  // run, and bytes of the host. On a stream of its own, into which no other thread puts work.
  void Make(RunState& state, CudaRuntime& runtime) {
    CudaQueue queue(runtime);
    context_.UseDevice(state.device());
    context_.queue = &queue;
    context_.run_number_was_read = false;
    cudaGraph_t made = nullptr;
    STEPNET_CUDA_CALL(cudaStreamBeginCapture(queue.stream(), cudaStreamCaptureModeRelaxed));
    try {
      RunOnStream(state, context_);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(queue.stream(), &made));
      if (made != nullptr) static_cast<void>(cudaGraphDestroy(made));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    STEPNET_CUDA_CALL(cudaStreamEndCapture(queue.stream(), &made));
    is_refused_ = context_.run_number_was_read || queue.was_asked_for_host_bytes();
    const cudaError_t result = is_refused_ ? cudaSuccess : cudaGraphInstantiate(&graph_, made, 0);
    static_cast<void>(cudaGraphDestroy(made));
    CheckCuda(result, "cudaGraphInstantiate");
  }

  const std::vector<const void*> addresses_;
  RunContext context_;  // with the temporary memory that the recorded kernels use, for as long as they may be played
  cudaGraphExec_t graph_ = nullptr;
  bool is_warm_ = false;
  bool is_refused_ = false;
};

// Those of one RunState, the last used first. Memory that inputs come in may be one of a few.
using Recordings = std::vector<std::shared_ptr<Recording>>;
constexpr size_t kMaxRecordings = 4;

class GraphExecutor : public Executor {
 protected:
  void RunSteps(RunState& state, RunContext& context) const override {
    if (!CanRecord(state) || !context.observers.empty()) return RunOnStream(state, context);
    auto recordings = std::static_pointer_cast<Recordings>(state.executor_data());
    if (recordings == nullptr) state.executor_data() = recordings = std::make_shared<Recordings>();
    std::vector<const void*> addresses = state.Addresses();
    const auto found =
        std::ranges::find_if(*recordings, [&](const auto& recording) { return recording->addresses() == addresses; });
    if (found == recordings->end()) {
      if (recordings->size() == kMaxRecordings) recordings->pop_back();
      recordings->insert(recordings->begin(), std::make_shared<Recording>(std::move(addresses)));
    } else {
      std::rotate(recordings->begin(), found, found + 1);
    }
    recordings->front()->Run(state, context);
  }

 private:
  // Observers want to see each instruction. What waits for the device, or finds its shapes as it runs, cannot be
  // recorded; graphs of very many nodes are not worth their memory.
  static bool CanRecord(const RunState& state) {
    constexpr std::int64_t kMaxNodes = 200'000;
    const auto& instructions = state.plan().instructions;
    const auto waits = [](const Instruction& instruction) { return instruction.dynamic || instruction.checks_values; };
    return std::ranges::none_of(instructions, waits) &&
           static_cast<std::int64_t>(instructions.size()) * state.num_steps() <= kMaxNodes;
  }
};

const ExecutorRegistration on_stream("serial", DeviceKind::kCuda, MakeSerialExecutor);
const ExecutorRegistration by_graphs("cuda", DeviceKind::kCuda, [] { return std::make_shared<GraphExecutor>(); });

}  // namespace
}  // namespace stepnet
