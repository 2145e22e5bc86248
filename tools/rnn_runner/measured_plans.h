// How long the instructions of plans take, for commands that show plans.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/tools/rnn_runner/session.h"

namespace stepnet::runner {

// What was measured of a plan on some number of threads.
struct MeasuredPlan {
  std::vector<double> costs;   // microseconds of each instruction, a step; an estimate of those that did not run
  std::vector<bool> have_run;  // by instruction: in all runs
  double step = 0;             // microseconds of a step, of all instructions together
  std::int64_t num_steps = 0;  // of a run; 0: it ran none
};

// The least of several runs of the session's net on so many threads (0: as the executor chooses), for each of the
// plans, which are of that net: where other programs take processors away, a run is longer, and never shorter. Takes
// two seconds at most, and five runs at least.
std::vector<MeasuredPlan> MeasurePlans(Session& session, int threads, const std::vector<StepPlan>& plans);

}  // namespace stepnet::runner
