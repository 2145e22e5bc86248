#include "stepnet/core/cancellation.h"
#include "stepnet/executor/executor.h"

namespace stepnet {
namespace {

class SerialExecutor : public Executor {
 public:
  void Run(RunState& state, RunContext& context) const override {
    const StepPlan& plan = state.plan();
    if (plan.does_nothing) return;
    const ObservedScope scope(context.observers, state.LoopEvent(RunEventKind::kLoop));
    for (const Stage& stage : plan.stages) RunSerially(state, stage, context);
  }
};

}  // namespace

void RunSerially(RunState& state, const Stage& stage, RunContext& context) {
  const std::int64_t num_steps = state.NumStepsOf(stage);
  for (std::int64_t k = 0; k < num_steps; ++k) {
    if (context.cancellation != nullptr) context.cancellation->Check();
    const std::int64_t t = state.plan().backward ? num_steps - 1 - k : k;
    for (int i = stage.begin; i < stage.end; ++i) state.RunInstruction(i, t, context);
  }
}

std::vector<std::string> ExecutorNames() { return {"serial", "parallel"}; }

std::shared_ptr<const Executor> MakeExecutor(const RunOptions& options) {
  if (options.executor == "serial") return std::make_shared<SerialExecutor>();
  if (options.executor == "parallel") return MakeParallelExecutor();
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("no executor \"", options.executor, "\"; there is ", Join(ExecutorNames(), ", ")));
}

}  // namespace stepnet
