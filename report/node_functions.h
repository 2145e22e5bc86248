// How many functions a node of a step graph computes.
#pragma once

#include <map>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/core/expressions/expr.h"

namespace stepnet {

// How often the node computes exp, tanh and the other functions of core/vector_math.h of float, in a step. Nothing of
// operators without a formula.
std::map<ExprOp, double> NodeFunctions(const StepGraph& graph, const StepNode& node);

}  // namespace stepnet
