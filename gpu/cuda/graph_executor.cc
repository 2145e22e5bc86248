// The executors of the GPU. "serial" puts the steps of a plan into the stream, one instruction after the other.
// "cuda" does so the first time; the second time it records them as a CUDA graph, and from then on plays that: what the
// host does for a run no longer grows with its steps.
#include <algorithm>
#include <memory>
#include <vector>

#include "stepnet/executor/executor.h"
#include "stepnet/gpu/cuda/cuda_recorder.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"
#include "stepnet/gpu/cuda/stage_streams.h"

namespace stepnet {
namespace {

// The steps of a run on memory at some addresses.
struct Recording {
  explicit Recording(CudaRuntime& runtime) : recorder(runtime) {}
  StageStreams streams;
  CudaRecorder recorder;
};

// Those of one RunState, the last used first. Memory that inputs come in may be one of a few.
using Recordings = std::vector<std::unique_ptr<Recording>>;
constexpr size_t kMaxRecordings = 4;

class GraphExecutor : public Executor {
 protected:
  void RunSteps(RunState& state, RunContext& context) const override {
    if (!CanRecord(state) || !context.observers.empty()) return RunOnStream(state, context);
    auto recordings = std::static_pointer_cast<Recordings>(state.executor_data());
    if (recordings == nullptr) state.executor_data() = recordings = std::make_shared<Recordings>();
    std::vector<const void*> addresses = state.Addresses();
    addresses.push_back(context.late_faults);
    const auto found = std::ranges::find_if(
        *recordings, [&](const auto& recording) { return recording->recorder.key() == addresses; });
    if (found == recordings->end()) {
      if (recordings->size() == kMaxRecordings) recordings->pop_back();
      auto& runtime = static_cast<CudaRuntime&>(RuntimeOf(state.device()));
      recordings->insert(recordings->begin(), std::make_unique<Recording>(runtime));
    } else {
      std::rotate(recordings->begin(), found, found + 1);
    }
    Recording& recording = *recordings->front();
    recording.recorder.Run(addresses, context, [&] { recording.streams.Run(state, context); });
  }

 private:
  // Observers want to see each instruction. What finds its shapes as it runs cannot be recorded; graphs of very many
  // nodes are not worth their memory.
  static bool CanRecord(const RunState& state) {
    constexpr std::int64_t kMaxNodes = 200'000;
    const auto& instructions = state.plan().instructions;
    return std::ranges::none_of(instructions, &Instruction::dynamic) &&
           static_cast<std::int64_t>(instructions.size()) * state.num_steps() <= kMaxNodes;
  }
};

const ExecutorRegistration on_stream("serial", DeviceKind::kCuda, MakeSerialExecutor);
const ExecutorRegistration by_graphs("cuda", DeviceKind::kCuda, [] { return std::make_shared<GraphExecutor>(); });

}  // namespace
}  // namespace stepnet
