// EmitPlan: makes of a StepGraph a StepPlan, which says where each home lies in memory, and what each node runs.
#pragma once

#include <cstdint>

#include "stepnet/compiler/place.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

struct EmitOptions {
  // Rows of rings, a power of two: how many steps may be under way at once where nothing else orders them.
  std::int64_t ring_rows = 1;
  BlockBounds blocks = {};
  // Instructions without kernels, costs and parts, one row a step for each temporary: only what computes a value and
  // what uses it wait for each other. To find out about a graph, not to run.
  bool is_draft = false;
};

// An instruction for each node, in the order of the nodes. Throws kInvalidNet for an operator that has no kernel, and
// what its factory throws.
StepPlan EmitPlan(const StepGraph& graph, const EmitOptions& options);

}  // namespace stepnet
