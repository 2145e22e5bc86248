// NodePairs: which nodes of a step come behind which others.
#pragma once

#include <set>
#include <utility>
#include <vector>

namespace stepnet {

using Followers = std::vector<std::vector<int>>;
using Pairs = std::set<std::pair<int, int>>;  // the earlier node, the later one

// All that come behind each other, directly or by way of others.
inline Pairs AllOf(const Followers& followers) {
  Pairs all;
  for (int from = static_cast<int>(followers.size()) - 1; from >= 0; --from) {
    for (const int next : followers[from]) {
      all.emplace(from, next);
      for (int to = next + 1; to < std::ssize(followers); ++to) {
        if (all.contains({next, to})) all.emplace(from, to);
      }
    }
  }
  return all;
}

}  // namespace stepnet
