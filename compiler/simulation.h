// Simulate: what a schedule takes by estimate, before anybody runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stepnet/compiler/schedule.h"

namespace stepnet {

struct Simulation {
  double microseconds = 0;  // from the first task to the last
  double busy = 0;          // of all threads, as a part of threads * microseconds
};

// A run of `steps` steps on `threads` threads that always take the ready task that is due first, at most
// `steps_under_way` steps at once.
Simulation Simulate(const Schedule& schedule, int threads, std::int64_t steps, std::int64_t steps_under_way,
                    const SchedulingCosts& costs);

// All stages of a plan that has schedules, as a run of so many steps takes them, each on the threads of its schedule or
// on `threads`, in microseconds.
double SimulatePlan(const StepPlan& plan, std::int64_t steps, const SchedulingCosts& costs,
                    std::optional<int> threads = std::nullopt);

// Microseconds a step of the longest chain of tasks, with threads without number: what no executor can be faster than.
double CriticalMicroseconds(const Schedule& schedule, std::int64_t steps_under_way);

}  // namespace stepnet
