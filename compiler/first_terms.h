// Sums over the steps that a plan's first instruction can begin.
#pragma once

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Where the first instruction that adds to memory which would be zeros (Home::from_zero) runs once for all steps, it
// writes instead: nobody has to clear that memory before (StepPlan::unzeroed_bases).
void WriteFirstTerms(const StepGraph& graph, StepPlan* plan);

}  // namespace stepnet
