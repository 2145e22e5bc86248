#include <algorithm>
#include <map>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

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
    const Stage& last = graph_.stages.back();
    const bool may_write = node.RunsOperators() || (last.is_behind && found->second >= last.begin);
    return may_write && count == 1 && graph_.values[term].added ? term : kNoValue;
  }

 private:
  const StepGraph& graph_;
  std::map<int, int> first_;  // -1: it runs for some steps at once
};

// What the nodes move is given where they move it, where nothing else reads it.
void GiveWhereMoved(const std::vector<int>& moves, StepGraph* graph) {
  const Uses uses(*graph);
  std::vector<bool> gone(graph->nodes.size(), false);
  for (const int n : moves) {
    const int from = graph->nodes[n].inputs[0], to = graph->nodes[n].outputs[0];
    if (!uses.IsTermAlone(from, to)) continue;
    std::ranges::replace(graph->nodes[graph->values[from].producer].outputs, from, to);
    graph->ForgetLast(from);
    gone[n] = true;
  }
  graph->Erase(gone);
}

// Where the first operator that adds to memory which would be zeros (Home::starts_at_zero) runs once for all steps, it
// writes instead, and the memory is cleared only in runs of no steps. A move does
// so behind all steps, or what gives the value does in its place.
bool WriteFirstTerms(StepGraph* graph) {
  const FirstWriters writers(*graph);
  std::vector<int> moves;
  bool is_changed = false;
  for (RowMove& zero : graph->before) {
    if (zero.kind != RowMove::Kind::kZero || zero.only_without_steps) continue;
    const auto is_cleared = [&](const Home& home) { return home.starts_at_zero && home.slot.base == zero.to.base; };
    if (std::ranges::none_of(graph->homes, is_cleared)) continue;
    const int term = writers.TermOf(zero.to.base);
    if (term == kNoValue) continue;
    graph->values[term].added = false;
    const int writer = graph->values[term].producer;
    if (graph->nodes[writer].kind == StepNode::Kind::kMove) moves.push_back(writer);
    zero.only_without_steps = true;
    for (Home& home : graph->homes) home.starts_at_zero = home.starts_at_zero && !is_cleared(home);
    is_changed = true;
  }
  if (!moves.empty()) GiveWhereMoved(moves, graph);
  return is_changed;
}

const PassRegistration registration(
    {.name = "write_first_terms", .place = 200, .opt_level = 2, .run = WriteFirstTerms});

}  // namespace
}  // namespace stepnet
