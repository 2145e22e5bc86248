// VerifySums: sums over the steps in memory of the plan's own, and what runs behind all steps for them.
#pragma once

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Throws GraphFault (compiler/verify_operators.h) where
// - a node writes to such a sum (Home::Kind::kSum) instead of adding, or reads it before all steps are done;
// - what runs behind all steps (Stage::is_behind) is not the last stage, reads what is not the same in all of them, or
//   gives something to memory that steps see.
void VerifySums(const StepGraph& graph);

}  // namespace stepnet
