// Sums over the steps that begin with a term instead of zeros.
#pragma once

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Where the first of the terms of a sum from zero is that of all steps at once, it is written, not added to zeros. For
// plans whose instructions are in their final order.
void WriteFirstTerms(const StepPlanRequest& request, StepPlan* plan);

}  // namespace stepnet
