// What may be one region, as the pass fuse_regions has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stepnet/compiler/region_node_kernel.h"
#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// What is known of a node that may join others.
struct Joining {
  std::int64_t elements = 0;  // over how many it goes
  bool gives_sums = false;    // over rows, which nothing in its region can read
};

// Why a node stays apart, whatever is beside it; null where it may join others: what has a formula, gives all of its
// outputs for one step, checks nothing and adds up nothing over all rows.
const char* WhyAlone(const StepGraph& graph, const StepNode& node, Joining* joining);
// Whether the node may be one region with others, as what it is and computes goes.
bool MayJoinOthers(const StepGraph& graph, const StepNode& node);

// Why nodes are no region; nothing where they are one. `own`: values that it need not give.
std::optional<RegionObstacle> ObstacleOf(const StepGraph& graph, std::span<const StepNode* const> nodes,
                                         std::span<const int> own);

}  // namespace stepnet
