#include "stepnet/executor/executor.h"

namespace stepnet {

void Executor::Run(RunState& state, RunContext& context) const {
  const StepPlan& plan = state.plan();
  context.UseDevice(state.device());
  RunEvent loop = state.LoopEvent(RunEventKind::kLoop);
  loop.queue = context.queue;
  const ObservedScope scope(context.observers, loop);
  if (context.late_faults != nullptr) {
    context.late_faults->SetPlacing(context.site.net_op,
                                    [&state](Fault fault) { return state.Placed(std::move(fault)); });
  }
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
