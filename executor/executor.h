// Executor: what carries out a StepPlan for a number of steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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

// Runs all stages of the plan, in the order of ForEachTurn, on the calling thread, as RunStage.
void RunSerially(RunState& state, RunContext& context);

// Runs one stage of the plan for steps [begin, end). Where it is recorded, the recorder cuts between steps
// (core/device.h), for its pieces to have about Target::max_operators_of_graph. REQUIRES: of what runs these steps
// nothing is under way.
void RunStage(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context);

// Runs one stage of the plan for steps [begin, end), or as many as there are, counted in the direction of the plan, on
// the calling thread, or a part of it. `begin` is a multiple of what the stage takes at once.
void RunSerially(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, RunContext& context,
                 const InstructionPart& part = {});

// Calls run(s, begin, end) for stage s of the plan and steps [begin, end), all of both in the order in which stages may
// run one after the other: block by block (StepPlan::block_steps), what runs once for all steps before or behind them.
template <typename Run>
void ForEachTurn(const RunState& state, const Run& run) {
  const std::vector<Stage>& stages = state.plan().stages;
  const std::int64_t num_steps = state.num_steps(), block = state.plan().block_steps;
  const auto takes_all = [](const Stage& stage) { return stage.steps_at_once == kAllSteps; };
  const auto first = std::ranges::find_if_not(stages, takes_all);
  const auto last = std::find_if(first, stages.end(), takes_all);
  const auto run_stages = [&](auto from, auto to, std::int64_t begin, std::int64_t end) {
    for (; from != to; ++from) run(static_cast<size_t>(from - stages.begin()), begin, end);
  };
  run_stages(stages.begin(), first, 0, num_steps);
  for (std::int64_t begin = 0; begin < num_steps; begin += block == 0 ? num_steps : block) {
    run_stages(first, last, begin, block == 0 ? num_steps : std::min(begin + block, num_steps));
  }
  run_stages(last, stages.end(), 0, num_steps);
}

}  // namespace stepnet
