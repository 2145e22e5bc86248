// Stages: which instructions of a step run in a loop, and which for many steps at once.
//
// A loop is needed where steps wait for each other: by instructions on a cycle of dependencies. Others may be taken out
// of it, and loops that wait for each other in one direction only may run one after the other (loop distribution; Allen
// and Kennedy, Optimizing Compilers for Modern Architectures, 2001, section 5). That is worth it for products with what
// all steps share: weights are then read once instead of once a step, and one product of many rows is faster than many
// of few. So projections of sequences run before the loop of a layer, gradients of weights after it, and the loops of
// two layers come apart where a projection lies between them. Projections that are as fast step by step
// (Target::min_rows_of_step) are in the loop behind them, but where a core's second cache is large and steps keep
// nothing for a gradient.
//
// Stages take some steps in turn, a chunk: the same ones on any number of threads, so that rounding is the same. What
// one stage gives to the next is then still in a cache, and stages may work on different chunks at the same time. Sums
// over the steps, which no step waits for, take all steps at once, after the others.
//
// All this follows from the bytes that instructions touch (dependencies.h); names, layers and cells mean nothing here.
#pragma once

#include <string>
#include <vector>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// A stage, before its instructions stand one after the other in a plan.
struct StageDraft {
  std::int64_t steps_at_once = 1;
  std::vector<int> instructions;  // in the order in which they shall run
};

// Finds the stages of `plan`, whose temporaries have one row for each step and whose instructions are in program order.
// Every instruction is in one of the stages, none of which is empty.
std::vector<StageDraft> FindStages(const StepPlan& plan);

// Why an instruction of a plan, as it is in such a draft, waits for no other step and is in a loop all the same: "it
// takes one step at a time".
std::string WhyInLoop(const Instruction& instruction, const StepPlan& plan);

// Which order of two instructions the stages of `plan` do not keep that a loop over all instructions would; empty:
// none.
std::string BrokenOrder(const StepPlan& plan);

}  // namespace stepnet
