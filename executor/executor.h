// Executor: what carries out a StepPlan for a number of steps.
#pragma once

#include <cstdint>
#include <string>

#include "stepnet/core/executor_registry.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {

// Why the steps that the state has been prepared for cannot be recorded (core/recorded_run.h), or empty.
std::string WhyNotRecorded(const RunState& state);

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

// What "serial" is; other devices than the CPU, whose queues keep the order of the work, may take it as it is.
std::shared_ptr<const Executor> MakeSerialExecutor();

// Runs all stages of the plan, one after the other, on the calling thread, as RunStage.
void RunSerially(RunState& state, RunContext& context);

// Runs one stage of the plan for all steps. Where it is recorded, the recorder cuts between steps (core/device.h), for
// its pieces to have about Target::max_operators_of_graph. REQUIRES: of what runs these steps nothing is under way.
void RunStage(RunState& state, const Stage& stage, RunContext& context);

// Runs one stage of the plan for steps [begin, end), or as many as there are, counted in the direction of the plan, on
// the calling thread, or a part of it. `begin` is a multiple of what the stage takes at once.
void RunSerially(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context,
                 const InstructionPart& part = {});

}  // namespace stepnet
