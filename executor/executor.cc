#include "stepnet/executor/executor.h"

#include <algorithm>

namespace stepnet {
namespace {

constexpr std::string_view kTooMany = "its steps have more than 200,000 operators in all";

std::int64_t NumOperators(const RunState& state) {
  return static_cast<std::int64_t>(state.plan().instructions.size()) * state.num_steps();
}

// What whoever records more than the steps has to know of them.
void NoteSteps(const RunState& state, RecordingNotes& notes) {
  if (const std::string_view why = WhyNotRecorded(state); !why.empty()) notes.Refuse(why);
  notes.num_step_operators += NumOperators(state);
  if (notes.num_step_operators > kMaxRecordedOperators) notes.Refuse(kTooMany);
}

}  // namespace

std::string_view WhyNotRecorded(const RunState& state) {
  if (std::ranges::any_of(state.plan().instructions, &Instruction::dynamic)) return "steps find shapes as they run";
  return NumOperators(state) > kMaxRecordedOperators ? kTooMany : std::string_view();
}

void Executor::Run(RunState& state, RunContext& context) const {
  const StepPlan& plan = state.plan();
  context.UseDevice(state.device());
  if (context.recording != nullptr) NoteSteps(state, *context.recording);
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
