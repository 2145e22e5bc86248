// Which nodes of a step must keep their order.
#pragma once

#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// For each of the nodes [begin, end), all of one stage that takes one step at a time, those that must come behind it,
// numbered from `begin`: they share bytes in a step, and one of them writes; or both may fail or do something that
// lasts. Those that follow from others may be missing.
std::vector<std::vector<int>> FollowersOf(const StepGraph& graph, int begin, int end);

}  // namespace stepnet
