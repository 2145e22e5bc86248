// The executor of devices that have a Recorder: what the host does for a run does not grow with its steps.
#pragma once

#include <functional>
#include <memory>

#include "stepnet/executor/executor.h"

namespace stepnet {

// Puts the steps of a run into queues of the device, so that they can be recorded. What it takes for that (temporary
// memory, streams) is there as long as it is: what was recorded may be played until then.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual void Run(RunState& state, RunContext& context) = 0;
};
using StepRunnerFactory = std::function<std::unique_ptr<StepRunner>()>;

// Each instruction of each step in turn, into the context's queue.
std::unique_ptr<StepRunner> MakeSerialStepRunner();

// Steps are launched in the first runs, then recorded for the addresses that they use, and played: many steps in
// several pieces, between which a run can be stopped. Where they are part of a run that is recorded as a whole they are
// launched into that.
std::shared_ptr<const Executor> MakeRecordingExecutor(StepRunnerFactory make_runner);

}  // namespace stepnet
