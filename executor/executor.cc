#include "stepnet/executor/executor.h"

#include <algorithm>

namespace stepnet {
namespace {

// All that run: what takes many steps at once runs once for those.
std::int64_t NumOperators(const RunState& state) {
  std::int64_t number = 0;
  for (const Stage& stage : state.plan().stages) number += (stage.end - stage.begin) * state.NumRunsOf(stage);
  return number;
}

// Empty where so many operators are recorded.
std::string WhyTooMany(std::int64_t num_operators, const Target& target) {
  const std::int64_t max = target.max_recorded_operators;
  return num_operators > max ? StrCat("its steps have more than ", max, " operators in all") : std::string();
}

// What whoever records more than the steps has to know of them.
void NoteSteps(const RunState& state, RecordingNotes& notes) {
  notes.num_step_operators += NumOperators(state);
  for (const std::string& why : {WhyNotRecorded(state), WhyTooMany(notes.num_step_operators, *state.plan().target)}) {
    if (!why.empty()) notes.Refuse(why);
  }
}

// What a device has found yet, also before this run. Waits for the device, where something may have been found.
void ThrowLateFaults(RunContext& context) {
  if (context.late_faults == nullptr || !context.late_faults->pending()) return;
  if (auto found = context.late_faults->Take()) throw std::move(found->fault.error);
}

}  // namespace

std::string WhyNotRecorded(const RunState& state) {
  if (std::ranges::any_of(state.plan().instructions, &Instruction::by_blobs)) return "steps find shapes as they run";
  return WhyTooMany(NumOperators(state), *state.plan().target);
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
  if (plan.gives) ThrowLateFaults(context);
  state.KeepOnceValues();
  state.RunMovesAfter(context);
}

}  // namespace stepnet
