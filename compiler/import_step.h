// ImportStep: makes a StepGraph of a step net.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "stepnet/compiler/step_bindings.h"

namespace stepnet {

// Adds to `graph`, which holds no values yet, but may count bases and lists and move rows, what the step net does:
// operators become calls, which share the net, bound moves nodes. Operators get `options`.
//
// A move into a blob stands right before the first operator that uses the blob, and no earlier, for the memory that it
// reads may be a sum to which the step adds before; where no operator uses the blob, it stands at the beginning. A move
// out of a blob stands behind the last operator that writes the blob; where none does, it stands where a move into the
// blob would. A bound output is copied right behind what gives its last value; where that lives outside, at the end,
// for the step may write there by another name.
//
// Throws what shape rules throw, with the operator as place; kInvalidNet for a blob that is read before anything writes
// it, and for a required move of a blob that nothing writes; kShapeMismatch when an operator gives a linked blob
// another shape than the link has, or when a move's sizes differ; kTypeMismatch for sums of other numbers than
// float and double; kShapeMismatch for a bound output of no known shape.
// REQUIRES: the step writes the blobs of bound outputs.
void ImportStep(const std::shared_ptr<const NetDef>& net, const RunOptions& options, const StepBindings& bindings,
                StepGraph* graph);

// Makes the graph of a step net alone. The blobs of `inputs` have a value before the first operator, of that
// description.
StepGraph ImportStep(NetDef net, const std::map<std::string, TensorInfo>& inputs);

}  // namespace stepnet
