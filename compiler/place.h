// PlaceHomes: decides where each home of a graph lies in the memory of a plan.
#pragma once

#include <cstdint>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// What a block has (StepPlan::block_steps), beside what the target says.
struct BlockBounds {
  std::int64_t min_chunks = 1;
  std::int64_t max_steps = 0;  // but for a single chunk, which a block has always; 0: no bound
};

// Adds a slot for each home to the plan, in their order, with the arena and the lists of blobs that they need. A home
// has room for the largest of its values. Temporaries have `ring_rows` rows, which steps use in turn, or with
// `all_kept` one for each step as those that are kept; what is passed has as many as a block has steps. Memory outside
// that steps may use in turn becomes a ring, where that is enough (rows_in_turn.h), but not with `all_kept`. Those of a
// stage that are never there at the same time share memory: where steps run one after the other, by the order of the
// nodes; otherwise by who waits for whom in any case, and only those on a cycle of steps, so that sharing orders
// nothing.
void PlaceHomes(const StepGraph& graph, std::int64_t ring_rows, const BlockBounds& blocks, bool all_kept,
                StepPlan* plan);

}  // namespace stepnet
