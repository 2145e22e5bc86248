#include <algorithm>
#include <set>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

class TermAdder {
 public:
  explicit TermAdder(StepGraph* graph)
      : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false), behind_(graph->nodes.size()) {}

  bool Run() {
    const int num_nodes = static_cast<int>(graph_.nodes.size());
    for (int n = 0; n < num_nodes; ++n) {
      if (!AddsTermOutside(graph_, graph_.nodes[n])) continue;
      const int total = graph_.nodes[n].inputs[0], memory = graph_.nodes[n].outputs[0];
      if (!IsSumOfTerms(total, memory)) continue;
      gone_[n] = true;
      AddEach(total, memory);
    }
    if (!std::ranges::count(gone_, true)) return false;
    Insert();
    graph_.Erase(gone_);
    return true;
  }

 private:
  // Whether the value is the sum of the inputs of what gives it, and nothing but that reads these, or could tell when
  // they are added to `memory`.
  bool IsSumOfTerms(int total, int memory) const {
    const int sum = graph_.values[total].producer;
    const StepNode& node = graph_.nodes[sum];
    if (!node.IsOneOperator() || !uses_.IsTemporary(total) || uses_.NumReaders(total) > 1) return false;
    std::set<int> homes = {graph_.values[total].home};
    int first = sum;
    for (const int term : node.inputs) {
      if (!Fits(term, total) || uses_.NumReaders(term) > 1) return false;
      homes.insert(graph_.values[term].home);
      first = std::min(first, graph_.values[term].producer);
    }
    size_t num_values = 0;
    for (const int home : homes) num_values += static_cast<size_t>(uses_.NumValues(home));
    if (num_values != node.inputs.size() + 1) return false;  // also where a term comes twice
    const Home& outside = graph_.homes[graph_.values[memory].home];
    const int move = graph_.values[memory].producer;
    return !uses_.IsMovedIn(outside) && !uses_.IsTouched(outside, first + 1, move) && AddsItsInputs(graph_, node);
  }

  // Whether an operator of the step has made as much of it as the total is.
  bool Fits(int term, int total) const {
    const StepValue &a = graph_.values[term], &b = graph_.values[total];
    return a.producer >= 0 && graph_.nodes[a.producer].IsOneOperator() && uses_.IsTemporary(term) &&
           a.info.dtype == b.info.dtype && a.info.shape.size() == b.info.shape.size();
  }

  // Each term behind what gives it. They may be such sums themselves.
  void AddEach(int total, int memory) {
    std::vector<int> to_do = {total};  // the next one last
    while (!to_do.empty()) {
      const int value = to_do.back();
      to_do.pop_back();
      const int producer = graph_.values[value].producer;
      if (IsSumOfTerms(value, memory)) {
        gone_[producer] = true;
        const std::vector<int>& terms = graph_.nodes[producer].inputs;
        to_do.insert(to_do.end(), terms.rbegin(), terms.rend());
        ForgetTotal(value);
        continue;
      }
      StepValue sum = graph_.values[memory];
      sum.version = -1;
      behind_[producer].push_back(
          {.kind = StepNode::Kind::kMove, .inputs = {value}, .outputs = {graph_.AddValue(sum)}});
    }
  }

  // What the blob holds at the end of the step is one of the terms, where they share its home.
  void ForgetTotal(int total) {
    const StepValue& value = graph_.values[total];
    graph_.last.erase(value.blob);
    for (const int term : graph_.nodes[value.producer].inputs) {
      if (graph_.values[term].blob == value.blob) graph_.last[value.blob] = term;
    }
  }

  // Puts the new nodes behind the moves that follow a node already.
  void Insert() {
    std::vector<StepNode> nodes;
    std::vector<bool> gone;
    std::vector<StepNode> waiting;
    const auto add_waiting = [&] {
      for (StepNode& node : waiting) {
        nodes.push_back(std::move(node));
        gone.push_back(false);
      }
      waiting.clear();
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].kind != StepNode::Kind::kMove) add_waiting();
      nodes.push_back(std::move(graph_.nodes[n]));
      gone.push_back(gone_[n]);
      std::ranges::move(behind_[n], std::back_inserter(waiting));
    }
    add_waiting();
    graph_.nodes = std::move(nodes);
    gone_ = std::move(gone);
  }

  StepGraph& graph_;
  const Uses uses_;
  std::vector<bool> gone_;                     // nodes
  std::vector<std::vector<StepNode>> behind_;  // by node
};

// Where an operator adds up its inputs, as its formula says, only for that to be added to memory outside, each of them
// is added there: outside += Sum(a, b) becomes outside += a and outside += b, the same within rounding. So each of
// several operators that use one weight may add to its gradient itself, and need not wait for the others in the same
// step.
bool AddTerms(StepGraph* graph) { return TermAdder(graph).Run(); }

const PassRegistration registration({.name = "add_terms", .place = 60, .opt_level = 2, .run = AddTerms});

}  // namespace
}  // namespace stepnet
