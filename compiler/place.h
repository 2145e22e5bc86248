// PlaceHomes: decides where each home of a graph lies in the memory of a plan.
#pragma once

#include <cstdint>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// Adds a slot for each home to the plan, in their order, with the arena and the lists of blobs that they need. A home
// has room for the largest of its values. Temporaries have `ring_rows` rows, which steps use in turn, or with
// `all_kept` one for each step as those that are kept; what is passed has as many as a block has steps: by the target,
// of `min_chunks` chunks at least. Those of a stage that are never there at the same time share memory: where steps run
// one after the other, by the order of the nodes; otherwise by who waits for whom in any case, and only those on a
// cycle of steps, so that sharing orders nothing.
void PlaceHomes(const StepGraph& graph, std::int64_t ring_rows, std::int64_t min_chunks, bool all_kept, StepPlan* plan);

}  // namespace stepnet
