// Sums over the steps: how a step adds its terms to them. The gradients of weights are such sums.
#pragma once

#include <map>
#include <string>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Whether the operator runs with blobs: itself, or because another value of a blob that it uses has no known shape.
bool RunsWithBlobs(const StepPlanRequest& request, const StepGraph& graph, const StepNode& node);

// Where a step adds up terms with Sum only to add that to memory outside, it adds each term there: outside += Sum(a, b)
// becomes outside += a and outside += b, the same within rounding. So each of several operators that use one weight may
// add to its gradient itself, and need not wait for the others in the same step.
void AddTermsOneByOne(StepPlanRequest* request, StepGraph* graph);

// By blob, the transfers that add to memory outside what one operator of the step computes, can add there itself
// (Kernel::can_add), which saves a copy of each term, and nothing else reads. They point into the request.
std::map<std::string, const Transfer*> FindDirectSums(const StepPlanRequest& request, const StepGraph& graph);

// Where the first of the terms of a sum from zero is that of all steps at once, it is written, not added to zeros. For
// plans whose instructions are in their final order.
void WriteFirstTerms(const StepPlanRequest& request, StepPlan* plan);

}  // namespace stepnet
