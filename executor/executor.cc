#include "stepnet/executor/executor.h"

namespace stepnet {

void Executor::Run(RunState& state, RunContext& context) const {
  const StepPlan& plan = state.plan();
  const ObservedScope scope(context.observers, state.LoopEvent(RunEventKind::kLoop));
  context.UseDevice(state.device());
  state.RunMovesBefore(context);
  try {
    if (!plan.does_nothing) RunSteps(state, context);
  } catch (const Error& error) {
    // What was thrown may come of the value with which a kernel went on.
    if (error.code() == ErrorCode::kCancelled || !state.faults().any()) throw;
  }
  state.faults().Throw();
  state.RunMovesAfter(context);
}

}  // namespace stepnet
