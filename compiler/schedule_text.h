// Schedules for people: why two instructions may or may not run at the same time.
#pragma once

#include <string>

#include "stepnet/compiler/schedule.h"

namespace stepnet {

// How a run uses its threads: "one thread", "2 threads, steps overlap, 3 of 12 instructions in parts", with schedules
// in all of the plan's stages.
std::string ThreadsText(const StepPlan& plan);

// How runs go that are too short for the schedule of one of the plan's stages: "runs of fewer than 16 steps: one
// thread". Empty where none is.
std::string ShorterRunsText(const StepPlan& plan, const Schedule& schedule);

// The stages of the plan; for each its instructions with their tasks, where their blobs live, what each waits for and
// through which bytes, the longest chain and how many threads could be kept busy; behind them the moves around the
// loop.
std::string ScheduleText(const StepPlan& plan);

// A digraph: instructions as boxes, in one step; edges into later steps are dashed and carry "+delta".
std::string ScheduleDot(const StepPlan& plan);

}  // namespace stepnet
