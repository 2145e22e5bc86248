// Regions of several operators, as a pass that fuses may leave them behind.
#pragma once

#include <array>
#include <random>

#include "stepnet/compiler/region_nodes.h"

namespace stepnet {

// Makes regions that stand next to each other in a stage of steps one: all of them, or with `random` some. Returns how
// many regions of several operators there are then.
inline int JoinRegions(StepGraph* graph, std::mt19937* random = nullptr) {
  const auto is_region = [&](int n) { return graph->nodes[n].kind == StepNode::Kind::kRegion; };
  const auto may_join = [&](int n) {  // nodes n - 1 and n
    for (const Stage& stage : graph->stages) {
      if (stage.begin == n) return false;
    }
    return is_region(n - 1) && is_region(n);
  };
  for (int n = static_cast<int>(graph->nodes.size()) - 1; n > graph->NumOnceNodes(); --n) {
    if (may_join(n) && (random == nullptr || (*random)() % 4 != 0))
      FormRegions(std::array{NodeRange{n - 1, n + 1}}, graph);
  }
  int formed = 0;
  for (const StepNode& node : graph->nodes) formed += node.RunsOperators() && !node.IsOneOperator() ? 1 : 0;
  return formed;
}

}  // namespace stepnet
