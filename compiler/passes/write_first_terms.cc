#include <algorithm>
#include <map>

#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

// The first node of a stage that runs once for all steps, among those that write to a base; by base.
class FirstWriters {
 public:
  explicit FirstWriters(const StepGraph& graph) : graph_(graph) {
    for (const Stage& stage : graph.stages) {
      for (int n = stage.begin; n < stage.end; ++n) {
        for (const int output : graph.nodes[n].given()) {
          const Home& home = graph.homes[graph.values[output].home];
          if (home.kind != Home::Kind::kOutside) continue;
          first_.emplace(home.slot.base, stage.steps_at_once == kAllSteps ? n : -1);
        }
      }
    }
  }

  // The value that the first writer adds to the base, where it can write it in place of zeros; else kNoValue.
  int TermOf(int base) const {
    const auto found = first_.find(base);
    if (found == first_.end() || found->second < 0) return kNoValue;
    const StepNode& node = graph_.nodes[found->second];
    int term = kNoValue, count = 0;
    for (const int output : node.given()) {
      if (graph_.homes[graph_.values[output].home].slot.base != base) continue;
      term = output;
      ++count;
    }
    return node.RunsOperators() && count == 1 && graph_.values[term].added ? term : kNoValue;
  }

 private:
  const StepGraph& graph_;
  std::map<int, int> first_;  // -1: it runs for some steps at once
};

// Where the first operator that adds to memory which would be zeros (Home::starts_at_zero) runs once for all steps, it
// writes instead, and the memory is cleared only in runs of no steps.
bool WriteFirstTerms(StepGraph* graph) {
  const FirstWriters writers(*graph);
  bool is_changed = false;
  for (RowMove& zero : graph->before) {
    if (zero.kind != RowMove::Kind::kZero || zero.only_without_steps) continue;
    const auto is_cleared = [&](const Home& home) { return home.starts_at_zero && home.slot.base == zero.to.base; };
    if (std::ranges::none_of(graph->homes, is_cleared)) continue;
    const int term = writers.TermOf(zero.to.base);
    if (term == kNoValue) continue;
    graph->values[term].added = false;
    zero.only_without_steps = true;
    for (Home& home : graph->homes) home.starts_at_zero = home.starts_at_zero && !is_cleared(home);
    is_changed = true;
  }
  return is_changed;
}

const PassRegistration registration(
    {.name = "write_first_terms", .place = 200, .opt_level = 2, .run = WriteFirstTerms});

}  // namespace
}  // namespace stepnet
