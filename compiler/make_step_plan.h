// MakeStepPlan: from the graph of a step, by passes, to what runs when and where values live.
#pragma once

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/compiler/step_plan_request.h"

namespace stepnet {

// `graph` is what ImportStep made of the request (compiler/import_step.h), and what was added since. Throws kInvalidNet
// for an operator that has no kernel.
StepPlan MakeStepPlan(StepGraph graph, const StepPlanRequest& request);

}  // namespace stepnet
