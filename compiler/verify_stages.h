// VerifyStages: checks how the nodes of a graph, and the instructions of a plan, are cut into stages.
#pragma once

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Throws GraphFault (compiler/verify_operators.h) for a graph in which
// - stages are not all nodes in their order, or those for some steps at once are not for equally many;
// - weights are packed in each step, or short runs leave out anything but that;
// - stages use values of each other, or of several steps at once, that are not kept or passed.
// With `thorough` it makes a plan of the graph, too, and throws where stages of that wait for each other or for later
// ones.
void VerifyStages(const StepGraph& graph, bool thorough);

// Throws kInternal for a plan whose stages take steps at once that wait for each other, or that wait for later stages.
void VerifyStages(const StepPlan& plan);

}  // namespace stepnet
