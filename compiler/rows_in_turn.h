// Memory outside of which steps use a few rows in turn: states that nobody reads behind the loop but for their last row
// (StepGraph::in_turns).
#pragma once

#include <cstdint>
#include <map>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// How many rows steps need of such bases, a power of two: enough for all that a step sees, so that it finds no row of
// another step; where steps may overlap (`ring_rows` > 1) as many as of temporaries, unless fewer make no step wait.
// Without those of which steps see rows of several steps as one, or which several stages use, or one for several steps
// at once: they need a row for each step.
std::map<int, std::int64_t> RowsInTurn(const StepGraph& graph, std::int64_t ring_rows);

}  // namespace stepnet
