// Sums over the steps that an operator adds to itself, which saves a copy of each term. The gradients of weights are
// such sums.
#pragma once

#include <map>
#include <string>

#include "stepnet/executor/step_plan.h"

namespace stepnet {

// By blob, the transfers that add to memory outside what one operator of the step computes, can add there itself
// (Operator::CanAdd), and nothing else reads. They point into the request.
std::map<std::string, const Transfer*> FindDirectSums(const StepPlanRequest& request, const StepGraph& graph);

}  // namespace stepnet
