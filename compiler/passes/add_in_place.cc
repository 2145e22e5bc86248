#include <algorithm>
#include <utility>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"

namespace stepnet {
namespace {

class InPlaceAdder {
 public:
  explicit InPlaceAdder(StepGraph* graph) : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false) {}

  void Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& sum = graph_.nodes[n];
      if (!IsSumOfTwo(sum)) continue;
      auto [first, last] = std::pair(sum.inputs[0], sum.inputs[1]);
      if (graph_.values[first].producer > graph_.values[last].producer) std::swap(first, last);
      if (graph_.values[first].producer == graph_.values[last].producer || !CanAdd(graph_, last)) continue;
      AddInPlace(first, last, sum.outputs[0]);
      gone_[n] = true;
    }
    graph_.Erase(gone_);
  }

 private:
  bool IsSumOfTwo(const StepNode& node) const {
    if (!node.IsOneOperator() || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
    const int sum = node.outputs[0];
    if (sum == kNoValue || graph_.values[sum].dynamic || !AddsItsInputs(graph_, node)) return false;
    const int home = graph_.values[sum].home;
    return graph_.homes[home].kind == Home::Kind::kTemporary && uses_.NumValues(home) == 1 &&
           std::ranges::all_of(node.inputs, [&](int term) { return IsOnlyRead(term, sum); });
  }

  // Whether an operator of the step has made as much of it as the sum is, and nothing else looks at it.
  bool IsOnlyRead(int term, int sum) const {
    const StepValue& value = graph_.values[term];
    return value.producer >= 0 && !gone_[value.producer] && graph_.nodes[value.producer].RunsOperators() &&
           !value.added && value.info == graph_.values[sum].info && uses_.IsTemporary(term) &&
           uses_.NumReaders(term) == 1 && uses_.NumValues(value.home) == 1;
  }

  void AddInPlace(int first, int last, int sum) {
    graph_.ForgetLast(first);
    graph_.ForgetLast(last);
    graph_.values[first].home = graph_.values[sum].home;
    StepNode& adder = graph_.nodes[graph_.values[last].producer];
    std::ranges::replace(adder.outputs, last, sum);
    graph_.values[sum].added = true;
    graph_.values[sum].producer = graph_.values[last].producer;
  }

  StepGraph& graph_;
  const Uses uses_;
  std::vector<bool> gone_;
};

}  // namespace

void AddInPlace(StepGraph* graph) { InPlaceAdder(graph).Run(); }

}  // namespace stepnet
