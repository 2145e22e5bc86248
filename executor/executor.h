// Executor: what carries out a StepPlan for a number of steps.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs what state.plan() does before the first step, every instruction of every step, with the effect of program
  // order, a backward plan from the last step to the first, and what it does after the last step. Throws what the first
  // failing instruction threw or, of the bad values that kernels found, which do not end the steps, the first by step,
  // operator and element, whatever the executor and the threads; nothing is running any more then, and the executor and
  // the state can be used again. Safe to call from several threads with different states.
  void Run(RunState& state, RunContext& context) const;

 protected:
  virtual void RunSteps(RunState& state, RunContext& context) const = 0;
};

using ExecutorFactory = std::function<std::shared_ptr<const Executor>()>;

// Makes an executor known, as a variable at namespace scope. On the CPU there are "serial": steps in order, operators
// in order, the reference for every other executor; and "parallel": every instruction of every step as soon as what it
// depends on is done, on threads of the process (docs/design.md); the same values, bit for bit.
class ExecutorRegistration {
 public:
  ExecutorRegistration(std::string name, DeviceKind device, ExecutorFactory make);
};

// What "serial" is; other devices than the CPU, whose queues keep the order of the work, may take it as it is.
std::shared_ptr<const Executor> MakeSerialExecutor();

// Gives the executor that `options` names. Throws kInvalidArgument for a name that is not registered, or twice, for the
// device of its target; the message lists those that are, and the devices that have one of this name.
std::shared_ptr<const Executor> MakeExecutor(const RunOptions& options);
std::vector<std::string> ExecutorNames(DeviceKind device);  // sorted

// Runs one stage of the plan for steps [begin, end), or as many as there are, counted in the direction of the plan, on
// the calling thread. `begin` is a multiple of what the stage takes at once.
void RunSerially(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context);

}  // namespace stepnet
