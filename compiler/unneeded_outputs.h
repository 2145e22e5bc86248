// Outputs of a step net's operators that need not be computed.
#pragma once

#include <set>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// The values of `graph` that nothing reads, in the step or outside, and that come from operators which compute only
// those of their outputs that they are asked for (Operator::Rows): the gradient of weights that nobody trains.
std::set<int> UnneededOutputs(const StepPlanRequest& request, const StepGraph& graph);

}  // namespace stepnet
