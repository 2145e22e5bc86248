#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/executor/executor.h"

namespace stepnet {
namespace {

class SerialExecutor : public Executor {
 protected:
  void RunSteps(RunState& state, RunContext& context) const override { RunSerially(state, context); }
};

const ExecutorRegistration serial("serial", DeviceKind::kCpu, MakeSerialExecutor);

}  // namespace

std::shared_ptr<const Executor> MakeSerialExecutor() { return std::make_shared<SerialExecutor>(); }

void RunSerially(RunState& state, RunContext& context) {
  ForEachTurn(state, [&](size_t s, std::int64_t begin, std::int64_t end) {
    RunStage(state, state.plan().stages[s], begin, end, context);
  });
}

void RunStage(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context) {
  RecordingNotes* const notes = context.recording;
  if (notes == nullptr || notes->recorder == nullptr || state.NumRunsOf(stage) == 0) {
    return RunSerially(state, stage, begin, end, context);
  }
  const std::int64_t at_once = stage.steps_at_once == kAllSteps ? state.num_steps() : stage.steps_at_once;
  const std::int64_t num_operators = stage.end - stage.begin;
  for (std::int64_t step = begin; step < end; step += at_once) {
    if (notes->IsFullFor(num_operators, state.plan().target->max_operators_of_graph)) notes->Cut();
    notes->num_in_piece += num_operators;
    RunSerially(state, stage, step, step + at_once, context);
  }
}

void RunSerially(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context,
                 const InstructionPart& part) {
  const std::int64_t at_once = stage.steps_at_once == kAllSteps ? state.num_steps() : stage.steps_at_once;
  end = state.NumRunsOf(stage) == 0 ? 0 : std::min(end, state.num_steps());
  for (std::int64_t step = begin; step < end; step += at_once) {
    CheckCancelled();
    for (int i = stage.begin; i < stage.end; ++i) state.RunInstruction(i, step / at_once, context, part);
  }
}

}  // namespace stepnet
