// fold_sums, for passes that change who gives a term.
#pragma once

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Operators add to memory outside themselves what a move would add. Returns whether one does now.
bool FoldSums(StepGraph* graph);

}  // namespace stepnet
