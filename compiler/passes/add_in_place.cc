#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"

namespace stepnet {
namespace {

class InPlaceAdder {
 public:
  explicit InPlaceAdder(StepGraph* graph)
      : graph_(*graph), uses_(*graph), written_(WrittenBases(*graph)), gone_(graph->nodes.size(), false) {}

  bool Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (!IsSumOfTwo(node)) continue;
      const int sum = node.outputs[0];
      auto [first, last] = std::pair(node.inputs[0], node.inputs[1]);
      if (ProducerOf(first) > ProducerOf(last)) std::swap(first, last);
      if (!IsOnlyRead(last, sum) || !CanAdd(graph_, last)) continue;
      if (IsOnlyReadOrSum(first, sum) && ProducerOf(first) != ProducerOf(last)) {
        graph_.ForgetLast(first);
        PutWith(first, sum);
      } else if (IsThereForAllSteps(first, sum)) {
        copies_.emplace(ProducerOf(last), Copy{.term = first, .sum = sum});
      } else {
        continue;
      }
      AddTo(last, sum);
      gone_[n] = true;
    }
    if (!std::ranges::count(gone_, true)) return false;
    InsertCopies();
    graph_.Erase(gone_);
    return true;
  }

 private:
  struct Copy {
    int term = kNoValue;
    int sum = kNoValue;
  };

  int ProducerOf(int value) const { return graph_.values[value].producer; }

  bool IsSumOfTwo(const StepNode& node) const {
    if (!node.IsOneOperator() || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
    const int sum = node.outputs[0];
    if (sum == kNoValue || graph_.values[sum].dynamic || !AddsItsInputs(graph_, node)) return false;
    const int home = graph_.values[sum].home;
    return graph_.homes[home].kind == Home::Kind::kTemporary && uses_.NumValues(home) == 1;
  }

  // Whether an operator of the step has made as much of it as the sum is, and nothing else looks at it.
  bool IsOnlyRead(int term, int sum) const {
    const StepValue& value = graph_.values[term];
    return value.producer >= 0 && !gone_[value.producer] && graph_.nodes[value.producer].RunsOperators() &&
           !value.added && value.info == graph_.values[sum].info && uses_.HasOneReader(term);
  }

  // The same of a sum that this pass has made: it goes on.
  bool IsOnlyReadOrSum(int term, int sum) const {
    if (!sums_.contains(term)) return IsOnlyRead(term, sum);
    return graph_.values[term].info == graph_.values[sum].info && uses_.IsTemporary(term) &&
           uses_.NumReaders(term) == 1;
  }

  void PutWith(int first, int sum) {
    const int home = graph_.values[first].home;
    graph_.homes[home].kept = graph_.homes[graph_.values[sum].home].kept;
    graph_.values[sum].home = home;
  }

  // Whether rows of a sequence that no step writes hold as much as the sum, on a target that copies them for many steps
  // at once.
  bool IsThereForAllSteps(int term, int sum) const {
    const StepValue& value = graph_.values[term];
    const Home& home = graph_.homes[value.home];
    return graph_.target->takes_all_over_time && value.producer < 0 && !value.dynamic &&
           home.kind == Home::Kind::kOutside && home.slot.row_bytes != 0 && !written_.contains(home.slot.base) &&
           value.info == graph_.values[sum].info;
  }

  // What gave `last` adds to what is where the sum is to be.
  void AddTo(int last, int sum) {
    graph_.ForgetLast(last);
    std::ranges::replace(graph_.nodes[ProducerOf(last)].outputs, last, sum);
    graph_.values[sum].added = true;
    graph_.values[sum].producer = ProducerOf(last);
    sums_.insert(sum);
  }

  // A copy of each term of `copies_`, to where the node that it stands before adds the other one.
  void InsertCopies() {
    std::vector<StepNode> nodes;
    std::vector<bool> gone;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto [begin, end] = copies_.equal_range(static_cast<int>(n));
      for (auto copy = begin; copy != end; ++copy) {
        const StepValue& sum = graph_.values[copy->second.sum];
        const std::string& name = graph_.values[copy->second.term].blob;
        const int value = graph_.AddValue({.blob = name, .info = sum.info, .home = sum.home});
        nodes.push_back({.kind = StepNode::Kind::kMove, .inputs = {copy->second.term}, .outputs = {value}});
        gone.push_back(false);
      }
      nodes.push_back(std::move(graph_.nodes[n]));
      gone.push_back(gone_[n]);
    }
    graph_.nodes = std::move(nodes);
    gone_ = std::move(gone);
  }

  StepGraph& graph_;
  const Uses uses_;
  const std::set<int> written_;      // bases
  std::vector<bool> gone_;           // by node
  std::set<int> sums_;               // values that were made so
  std::multimap<int, Copy> copies_;  // by the node that they stand before
};

}  // namespace

bool AddInPlace(StepGraph* graph) { return InPlaceAdder(graph).Run(); }

}  // namespace stepnet
