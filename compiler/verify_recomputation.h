// VerifyRecomputation: checks what a graph says where memory is short.
#pragma once

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Throws GraphFault (compiler/verify_operators.h), naming the value, for a graph in which
// - what a step forward does not keep (StepGraph::not_kept) is no blob that ends as a temporary that is kept;
// - a step back is to compute again (StepGraph::recomputation) what it reads from no base that there is, or what no
//   node of the part gives, or the part is of memory that there is not.
void VerifyRecomputation(const StepGraph& graph);

}  // namespace stepnet
