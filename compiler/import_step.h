// From a step net to its StepGraph.
#pragma once

#include <map>
#include <string>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan_request.h"

namespace stepnet {

// The graph of a request: operators as calls, moves as moves. Moves into blobs come before the operator that is
// the first to use them, as late as that: memory outside may be a sum that the step itself adds to before. Those into
// blobs that none uses come first. What no operator writes goes on at once. Others come after the last writer. Step
// outputs of what lives in rows, or is not written, come last, as the step may write those rows by another name.
//
// Throws what shape rules throw, with the operator as place; kInvalidNet for a blob that is read before anything writes
// it, and for a required move of a blob that nothing writes; kShapeMismatch when an operator gives a linked blob
// another shape than the link has, or when a move's sizes differ; kTypeMismatch for sums of other numbers than
// float and double.
StepGraph ImportStep(const StepPlanRequest& request);

// The graph of a step net alone, where the blobs of `inputs` hold that before the first operator.
StepGraph ImportStep(const NetDef& net, const std::map<std::string, TensorInfo>& inputs);

}  // namespace stepnet
