// FindRecomputable: which values a run forward keeps that the steps back could as well compute again.
#pragma once

#include <vector>

#include "stepnet/compiler/recomputed_value.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// Values that formulas give from what is there in the run back anyway: rows of states and sequences, captured tensors,
// what is kept. No product of matrices is computed again, nothing with effects, and no value that a product could add
// to or be split by, forward or back, were it not kept: bits are those of runs that keep all. The values that free the
// most bytes for the time that they take come first.
//
// `imported` is the step forward as ImportStep made it, with what the backward step net reads kept.
std::vector<RecomputedValue> FindRecomputable(const StepGraph& imported, const RecurrentSpec& spec);

}  // namespace stepnet
