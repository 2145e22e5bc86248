// Memory outside of which steps use a few rows in turn: states that nobody reads behind the loop but for their last row
// (StepGraph::in_turns).
#pragma once

#include <cstdint>
#include <map>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// How many rows steps need of such bases, a power of two: no fewer than a step sees, from the oldest to the newest one.
// Where steps may overlap (`ring_rows` > 1) there are as many as of temporaries if with fewer the very next step would
// write over a row that it has no other reason to wait for. Without those of which a node sees several rows as one, or
// which several stages use, or one for several steps at once: they need a row for each step.
std::map<int, std::int64_t> RowsInTurn(const StepGraph& graph, std::int64_t ring_rows);

}  // namespace stepnet
