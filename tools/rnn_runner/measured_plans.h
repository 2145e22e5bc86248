// How long the instructions of plans take, for commands that show plans.
#pragma once

#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/tools/rnn_runner/session.h"

namespace stepnet::runner {

// What was measured of a plan on some number of threads.
struct MeasuredPlan {
  std::vector<double> costs;  // microseconds of each instruction, a step
  double step = 0;            // microseconds of a step, of all instructions together
};

// The medians of several runs of the session's net on so many threads (0: as the executor chooses), for each of the
// plans, which are of that net. Takes two seconds at most, and five runs at least.
std::vector<MeasuredPlan> MeasurePlans(Session& session, int threads, const std::vector<StepPlan>& plans);

}  // namespace stepnet::runner
