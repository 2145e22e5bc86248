#include "stepnet/compiler/verify_sums.h"

#include <set>
#include <string>

#include "stepnet/compiler/uses.h"
#include "stepnet/compiler/verify_operators.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

class SumVerifier {
 public:
  explicit SumVerifier(const StepGraph& graph)
      : graph_(graph),
        begin_(!graph.stages.empty() && graph.stages.back().is_behind ? graph.stages.back().begin
                                                                      : static_cast<int>(graph.nodes.size())) {}

  void Run() {
    for (const Stage& stage : graph_.stages) {
      const bool is_last = &stage == &graph_.stages.back();
      if (!stage.is_behind || (is_last && stage.steps_at_once == kAllSteps)) continue;
      throw GraphFault{"what runs behind all steps is not the last stage"};
    }
    const auto end = static_cast<int>(graph_.nodes.size());
    for (int n = 0; n < begin_; ++n) CheckOfStep(n);
    if (begin_ == end) return;
    written_ = WrittenBases(graph_);
    for (const StepNode& node : graph_.nodes) {
      for (const int input : node.inputs) {
        if (graph_.HomeOf(input).kind == Home::Kind::kOutside) read_.insert(graph_.HomeOf(input).slot.base);
      }
    }
    for (int n = begin_; n < end; ++n) CheckBehind(n);
  }

 private:
  [[noreturn]] void ThrowOf(int node, int value, const char* what) const {
    throw GraphFault{StrCat("node ", node, ": ", graph_.NameOf(value), " ", what)};
  }

  void CheckOfStep(int n) const {
    for (const int input : graph_.nodes[n].inputs) {
      if (graph_.HomeOf(input).kind == Home::Kind::kSum) ThrowOf(n, input, "is read before all steps have added to it");
    }
    for (const int output : graph_.nodes[n].given()) {
      if (graph_.HomeOf(output).kind != Home::Kind::kSum || graph_.values[output].added) continue;
      ThrowOf(n, output, "is written where steps add up");
    }
  }

  // That what such nodes pass to each other is theirs alone is checked with all stages.
  void CheckBehind(int n) const {
    for (const int input : graph_.nodes[n].inputs) {
      const Home& home = graph_.HomeOf(input);
      const bool is_given = home.kind == Home::Kind::kOutside && home.slot.row_bytes == 0;
      if (home.kind == Home::Kind::kOnce || home.kind == Home::Kind::kSum || IsOfStage(home)) continue;
      if (!is_given || written_.contains(home.slot.base))
        ThrowOf(n, input, "is read behind all steps, and is not the same in all of them");
    }
    for (const int output : graph_.nodes[n].given()) {
      const Home& home = graph_.HomeOf(output);
      const bool is_sum = home.kind == Home::Kind::kOutside && home.slot.row_bytes == 0;
      if (IsOfStage(home) || (is_sum && !read_.contains(home.slot.base))) continue;
      ThrowOf(n, output, "is given behind all steps, where steps see it");
    }
  }

  static bool IsOfStage(const Home& home) { return home.kind == Home::Kind::kTemporary && !home.kept && !home.passed; }

  const StepGraph& graph_;
  const int begin_;        // of the nodes that run behind all steps
  std::set<int> written_;  // bases
  std::set<int> read_;     // bases, by nodes
};

}  // namespace

void VerifySums(const StepGraph& graph) { SumVerifier(graph).Run(); }

}  // namespace stepnet
