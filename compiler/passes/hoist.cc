#include <algorithm>
#include <set>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/formulas/formula_cache.h"

namespace stepnet {
namespace {

class Hoister {
 public:
  explicit Hoister(StepGraph* graph)
      : graph_(*graph), uses_(*graph), written_(WrittenBases(*graph)), is_the_same_(graph->values.size(), false) {
    stages_ = graph_.stages;
    if (stages_.empty()) stages_ = {{.begin = 0, .end = static_cast<int>(graph_.nodes.size())}};
  }

  bool Run() {
    for (size_t v = 0; v < graph_.values.size(); ++v)
      is_the_same_[v] = IsGivenWhole(graph_, written_, static_cast<int>(v));
    std::vector<bool> leaves(graph_.nodes.size(), false);
    for (const Stage& stage : stages_) {
      for (int n = stage.begin; n < stage.end && stage.steps_at_once != kAllSteps; ++n) {
        leaves[n] = MayLeave(graph_.nodes[n]);
        for (const int value : graph_.nodes[n].given()) is_the_same_[value] = leaves[n];
      }
    }
    KeepFills(&leaves);
    if (!std::ranges::count(leaves, true)) return false;
    for (size_t n = 0; n < leaves.size(); ++n) {
      for (const int value : graph_.nodes[n].given()) {
        if (!leaves[n]) continue;
        Home& home = graph_.homes[graph_.values[value].home];
        home.kind = Home::Kind::kOnce;
        home.kept = false;  // it is there for all steps
      }
    }
    MoveToFront(leaves);
    return true;
  }

 private:
  // What reads nothing, as a fill, leaves only for what else does: a region takes it for less than it takes to read it.
  void KeepFills(std::vector<bool>* leaves) const {
    std::set<int> read;  // by what leaves
    for (size_t n = leaves->size(); n-- > 0;) {
      const StepNode& node = graph_.nodes[n];
      const bool is_read = std::ranges::any_of(node.given(), [&](int value) { return read.contains(value); });
      if (node.inputs.empty() && !is_read) (*leaves)[n] = false;
      if ((*leaves)[n]) read.insert(node.inputs.begin(), node.inputs.end());
    }
  }

  bool MayLeave(const StepNode& node) const {
    if (!node.IsOneOperator()) return false;
    const auto is_apart = [&](int value) {
      const int home = graph_.values[value].home;
      return graph_.homes[home].kind == Home::Kind::kTemporary && uses_.NumValues(home) == 1;
    };
    const Kernel* kernel = node.call->schema().FindKernel(graph_.target->device);
    return kernel != nullptr && std::ranges::all_of(node.given(), is_apart) &&
           std::ranges::all_of(node.inputs, [&](int value) { return is_the_same_[value]; }) &&
           DependsOnInputsAlone(graph_, node) &&
           !MayFindBadValues(ShapeQuery(*node.call, graph_.InfosOf(node.inputs)), *kernel);
  }

  void MoveToFront(const std::vector<bool>& leaves) {
    std::vector<StepNode> nodes, others;
    std::vector<Stage> stages;
    for (const Stage& stage : stages_) {
      Stage& rest = stages.emplace_back(stage);
      rest.begin = static_cast<int>(others.size());
      for (int n = stage.begin; n < stage.end; ++n) (leaves[n] ? nodes : others).push_back(std::move(graph_.nodes[n]));
      rest.end = static_cast<int>(others.size());
    }
    std::erase_if(stages, [](const Stage& stage) { return stage.begin == stage.end; });
    graph_.nodes = std::move(others);
    graph_.stages = std::move(stages);
    graph_.AddOnce(std::move(nodes));
  }

  StepGraph& graph_;
  std::vector<Stage> stages_;
  const Uses uses_;
  const std::set<int> written_;    // bases
  std::vector<bool> is_the_same_;  // by value: in all steps
};

// What follows from what is the same in all steps, as from parameters alone, is computed once, before the first step.
// Bits stay the same. The gradient's steps read what it was kept for there, too.
bool Hoist(StepGraph* graph) { return Hoister(graph).Run(); }

const PassRegistration registration({.name = "hoist", .place = 160, .opt_level = 1, .run = Hoist});

}  // namespace
}  // namespace stepnet
