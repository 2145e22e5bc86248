// The text of a StepPlan, for people and tests: where values lie, and what runs on them (docs/step_graph.md).
//
//   plan of net cell
//     base 2: 16 rows of 64 bytes
//     slot 0: x_t, linked at 0[24 * t], 24 bytes
//     slot 1: s, ring at 2[64 * (t % 16)], 24 bytes
//     slot 2: h, linked at 1[24 * (t + 1)], 24 bytes
//   in each step:
//     0: s = Tanh(x_t): 0 to 1
//     1: h = Mul(s, x_t): 1, 0 to 2
#pragma once

#include <string>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Schedules are not in it: compiler/schedule_text.h.
std::string PlanText(const StepPlan& plan);

// What a run does around the loop, a line each, with their numbers; "" where it does nothing.
std::string MovesBeforeText(const StepPlan& plan);
std::string MovesAfterText(const StepPlan& plan);

}  // namespace stepnet
