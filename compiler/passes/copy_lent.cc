#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// What the caller has lent (StepGraph::lent) and nodes write to is copied before the first step: steps change the copy.
bool CopyLent(StepGraph* graph) {
  std::set<int> to_copy = WrittenBases(*graph);
  std::vector<RowMove> copies;
  for (const Home& home : graph->homes) {
    const int base = home.slot.base;
    const bool is_outside = home.kind == Home::Kind::kOutside;
    if (!is_outside || !graph->lent.contains(base) || to_copy.erase(base) == 0) continue;
    copies.push_back({.kind = RowMove::Kind::kLend, .to = {.name = home.slot.blob, .base = base}});
  }
  graph->before.insert(graph->before.begin(), copies.begin(), copies.end());
  return !copies.empty();
}

const PassRegistration registration(
    {.name = "copy_lent", .place = 150, .opt_level = 0, .required = true, .run = CopyLent});

}  // namespace
}  // namespace stepnet
