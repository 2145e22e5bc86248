#include <algorithm>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// Whether the value is made of what was in its place before.
bool IsMadeInPlace(const StepGraph& graph, const StepValue& value) {
  const std::vector<int>& inputs = graph.nodes[value.producer].inputs;
  return value.added || std::ranges::any_of(inputs, [&](int v) { return graph.values[v].home == value.home; });
}

}  // namespace

void SplitHomes(StepGraph* graph) {
  std::vector<bool> is_taken(graph->homes.size(), false);
  std::vector<int> home_now(graph->homes.size());  // of the values that follow in a home
  for (size_t h = 0; h < home_now.size(); ++h) home_now[h] = static_cast<int>(h);
  std::vector<std::pair<int, int>> moved;  // value, its new home; reads are looked up with the old ones until then
  for (const StepNode& node : graph->nodes) {
    for (const int v : node.given()) {
      const StepValue& value = graph->values[v];
      const auto h = static_cast<size_t>(value.home);
      const bool goes_with_step = graph->homes[h].kind == Home::Kind::kTemporary && !graph->homes[h].kept;
      if (goes_with_step && is_taken[h] && !IsMadeInPlace(*graph, value)) {
        home_now[h] = static_cast<int>(graph->homes.size());
        graph->homes.push_back({.kind = Home::Kind::kTemporary});
      }
      is_taken[h] = true;
      if (home_now[h] != value.home) moved.emplace_back(v, home_now[h]);
    }
  }
  for (const auto& [value, home] : moved) graph->values[value].home = home;
}

}  // namespace stepnet
