#include "stepnet/compiler/passes/fold_sums.h"

#include <algorithm>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// Whether the operator that gives what move `n` adds can add it, nothing else reads that, and nothing sees the sum
// between the two.
bool OnlyOperatorAdds(const StepGraph& graph, const Uses& uses, int n) {
  const StepNode& move = graph.nodes[n];
  if (!AddsTermOutside(graph, move)) return false;
  const int term = move.inputs[0];
  const StepValue& value = graph.values[term];
  if (!uses.HasOneReader(term)) return false;
  const Home& outside = graph.homes[graph.values[move.outputs[0]].home];
  return CanAdd(graph, term) && !uses.IsTouched(outside, value.producer, n);
}

const PassRegistration registration({.name = "fold_sums", .place = 90, .opt_level = 0, .run = FoldSums});

}  // namespace

// Operators that can (Kernel::can_add) add to memory outside what would otherwise be moved there, and what nothing else
// reads: this saves a copy of each term of a sum over the steps. Rounds otherwise: a product may begin with the sum.
bool FoldSums(StepGraph* graph) {
  const Uses uses(*graph);
  std::vector<bool> gone(graph->nodes.size(), false);
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    const StepNode& move = graph->nodes[n];
    if (!OnlyOperatorAdds(*graph, uses, static_cast<int>(n))) continue;
    const int term = move.inputs[0];
    std::ranges::replace(graph->nodes[graph->values[term].producer].outputs, term, move.outputs[0]);
    graph->last.erase(graph->values[term].blob);
    gone[n] = true;
  }
  if (!std::ranges::count(gone, true)) return false;
  graph->Erase(gone);
  return true;
}

}  // namespace stepnet
