// MakeStepPlan: from the graph of a step, by passes, to what runs when and where values live.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"

namespace stepnet {

struct PlanSettings {
  RunOptions options = {};
  // How many rows a ring has, a power of two: so many steps may be under way at once where nothing else orders them.
  std::int64_t ring_rows = 1;
  std::int64_t max_block_steps = 0;              // BlockBounds::max_steps
  std::int64_t max_steps = 0;                    // as in StepPlan
  std::int64_t max_queues = 0;                   // likewise
  std::vector<RecomputedValue> recomputed = {};  // likewise
  // What the step need not keep, which is `recomputed` then: asked of the graph when all is decided by which anything
  // is rounded, before the pass "recompute". May be empty.
  std::function<std::vector<RecomputedValue>(const StepGraph&)> choose_recomputed = nullptr;
};

// `graph` is what ImportStep made (compiler/import_step.h), with the moves of rows around the steps. Throws kInvalidNet
// for an operator that has no kernel.
StepPlan MakeStepPlan(StepGraph graph, const PlanSettings& settings);

// Such a graph when all is decided by which anything is rounded, before the pass "recompute".
StepGraph WithRoundingDecided(StepGraph graph, const RunOptions& options);

}  // namespace stepnet
