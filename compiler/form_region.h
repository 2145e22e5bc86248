// Regions of several operators: made of nodes that each run some.
#pragma once

#include <span>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// The region of these nodes, which run operators, in their order. Values that they give in local homes become its
// locals, others its outputs; what they do not give themselves its inputs, each once.
StepNode RegionOf(const StepGraph& graph, std::span<const StepNode> nodes);

// Makes nodes [begin, end), which are regions, one. What only they use goes into no memory any more; what lives
// outside, is kept or is read by others is an output. REQUIRES: they are of one stage.
void FormRegion(int begin, int end, StepGraph* graph);

}  // namespace stepnet
