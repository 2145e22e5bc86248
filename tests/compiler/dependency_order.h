// What dependencies imply, found by following every chain of them.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "stepnet/compiler/dependencies.h"

namespace stepnet {

// Whether `to` of step k + delta waits for `from` of step k, directly or through others, for k from 0 on.
inline bool IsOrdered(const Dependencies& dependencies, int from, int to, int delta) {
  std::set<std::pair<int, int>> reached;
  std::vector<std::pair<int, int>> stack = {{from, 0}};
  while (!stack.empty()) {
    const auto [at, steps] = stack.back();
    stack.pop_back();
    for (const Dependency& edge : dependencies.edges) {
      if (edge.from != at || steps + edge.delta > delta) continue;
      if (edge.to == to && steps + edge.delta == delta) return true;
      if (reached.emplace(edge.to, steps + edge.delta).second) stack.emplace_back(edge.to, steps + edge.delta);
    }
  }
  return false;
}

}  // namespace stepnet
