#include "stepnet/compiler/components.h"

#include <algorithm>
#include <utility>

namespace stepnet {
namespace {

// Depth first from `start`, without what has been seen; `end` is told of each when all behind it has ended.
template <typename EndFn>
void Walk(const std::vector<std::vector<int>>& edges, int start, std::vector<bool>* seen, const EndFn& end) {
  if ((*seen)[start]) return;
  (*seen)[start] = true;
  std::vector<std::pair<int, size_t>> stack = {{start, 0}};
  while (!stack.empty()) {
    auto& [at, next] = stack.back();
    if (next == edges[at].size()) {
      end(at);
      stack.pop_back();
      continue;
    }
    const int to = edges[at][next++];
    if ((*seen)[to]) continue;
    (*seen)[to] = true;
    stack.emplace_back(to, 0);
  }
}

}  // namespace

// What is reached backward, in the reverse of the order in which a walk forward ends.
std::vector<std::vector<int>> StronglyConnectedComponents(const std::vector<std::vector<int>>& edges) {
  std::vector<std::vector<int>> backward(edges.size());
  std::vector<int> ended;
  std::vector<bool> seen(edges.size(), false);
  for (size_t n = 0; n < edges.size(); ++n) {
    for (const int to : edges[n]) backward[to].push_back(static_cast<int>(n));
    Walk(edges, static_cast<int>(n), &seen, [&](int at) { ended.push_back(at); });
  }
  std::vector<std::vector<int>> components;
  seen.assign(edges.size(), false);
  for (size_t k = ended.size(); k-- > 0;) {
    if (seen[ended[k]]) continue;
    std::vector<int>& component = components.emplace_back();
    Walk(backward, ended[k], &seen, [&](int at) { component.push_back(at); });
    std::ranges::sort(component);
  }
  return components;
}

}  // namespace stepnet
