#include <algorithm>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/passes/uses.h"
#include "stepnet/core/broadcast_rule.h"

namespace stepnet {
namespace {

class SumDropper {
 public:
  explicit SumDropper(StepGraph* graph)
      : graph_(*graph), uses_(*graph), gone_(graph->nodes.size(), false), more_readers_(graph->values.size()) {}

  void Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const StepNode& node = graph_.nodes[n];
      if (!GivesFirstInput(node)) continue;
      const int from = node.inputs[0], to = node.outputs[0];
      if (to == kNoValue) continue;
      if (IsOwn(to) && KeepsBytes(from, static_cast<int>(n))) {
        ReadInPlaceOf(to, from);
      } else if (MayMoveTo(from, to, static_cast<int>(n))) {
        GiveAtOnce(from, to);
      } else {
        continue;
      }
      gone_[n] = true;
    }
    graph_.Erase(gone_);
  }

 private:
  bool GivesFirstInput(const StepNode& node) const {
    if (!node.IsOneOperator() || node.by_blobs || node.call->schema().FindArgument(kMayShare) == nullptr) return false;
    std::vector<TensorInfo> infos;
    for (const int input : node.inputs) infos.push_back(graph_.values[input].info);
    return IsFirstInput(ShapeQuery(*node.call, infos));
  }

  // Whether the value lives in memory of the step's own, alone.
  bool IsOwn(int value) const { return uses_.IsTemporary(value) && uses_.NumValues(graph_.values[value].home) == 1; }

  bool MeetsBytes(int value, const Home& home, int own_home) const {
    const int of = graph_.values[value].home;
    return of == own_home || ShareBytes(graph_.homes[of], home);
  }

  // Whether nothing behind node n writes where the value is.
  bool KeepsBytes(int value, int n) const {
    const int home = graph_.values[value].home;
    for (size_t m = n + 1; m < graph_.nodes.size(); ++m) {
      for (const int output : graph_.Given(graph_.nodes[m])) {
        if (MeetsBytes(output, graph_.homes[home], home)) return false;
      }
    }
    return true;
  }

  // Whether what gives `from` can write to the memory of `to`: nothing else reads `from`, and nothing from there up to
  // node n reads or writes that memory.
  bool MayMoveTo(int from, int to, int n) const {
    const int producer = graph_.values[from].producer, home = graph_.values[to].home;
    if (producer < 0 || gone_[producer] || !IsOwn(from) || uses_.NumReaders(from) + more_readers_[from] > 1)
      return false;
    if (!graph_.nodes[producer].IsOneOperator() || graph_.nodes[producer].by_blobs) return false;
    for (int m = producer; m < n; ++m) {
      const StepNode& node = graph_.nodes[m];
      const auto meets = [&](int value) { return MeetsBytes(value, graph_.homes[home], home); };
      if (std::ranges::any_of(node.inputs, meets) || std::ranges::any_of(graph_.Given(node), meets)) return false;
    }
    return true;
  }

  void ReadInPlaceOf(int value, int by) {
    for (StepNode& node : graph_.nodes) std::ranges::replace(node.inputs, value, by);
    more_readers_[by] += uses_.NumReaders(value) + more_readers_[value];
    graph_.last.erase(graph_.values[value].blob);
  }

  void GiveAtOnce(int from, int to) {
    const int producer = graph_.values[from].producer;
    std::ranges::replace(graph_.nodes[producer].outputs, from, to);
    graph_.values[to].producer = producer;
    graph_.last.erase(graph_.values[from].blob);
  }

  StepGraph& graph_;
  const Uses uses_;  // of the graph before
  std::vector<bool> gone_;
  std::vector<int> more_readers_;  // than before, by value
};

}  // namespace

void DropSums(StepGraph* graph) { SumDropper(graph).Run(); }

}  // namespace stepnet
