#include "stepnet/compiler/verify_stages.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/find_stages.h"
#include "stepnet/compiler/verify_operators.h"

namespace stepnet {
namespace {

bool IsLoop(const Stage& stage) { return stage.steps_at_once == 1; }

void CheckOrder(const StepPlan& plan) {
  std::span stages = std::span(plan.stages).subspan(static_cast<size_t>(plan.num_once_stages));
  if (!stages.empty() && stages.back().is_behind) stages = stages.first(stages.size() - 1);
  if (stages.size() <= 1 && std::ranges::all_of(stages, IsLoop)) return;
  for (const Stage& stage : stages) {
    for (int n = stage.begin; n < stage.end && stage.steps_at_once != 1; ++n) {
      if (plan.instructions[n].can_take_steps) continue;
      throw GraphFault{
          StrCat("node ", n, ", ", plan.instructions[n].text, ": it cannot run for several steps at once")};
    }
  }
  // Executors take what runs once for all steps before all others or behind them (ForEachTurn).
  const auto takes_all = [](const Stage& stage) { return stage.steps_at_once == kAllSteps; };
  const auto first = std::ranges::find_if_not(stages, takes_all);
  const auto last = std::find_if(first, stages.end(), takes_all);
  if (!std::all_of(last, stages.end(), takes_all)) {
    throw GraphFault{StrCat("node ", last->begin, ", ", plan.instructions[last->begin].text,
                            ": it runs once for all steps, between what does not")};
  }
  std::string problem = BrokenOrder(plan);
  if (!problem.empty()) throw GraphFault{std::move(problem)};
}

class StageVerifier {
 public:
  explicit StageVerifier(const StepGraph& graph) : graph_(graph) {}

  void Run(bool thorough) const {
    CheckLengths();
    CheckPacks();
    if (graph_.stages.size() <= 1 && std::ranges::all_of(graph_.stages, IsLoop)) return;
    CheckKept();
    if (thorough) CheckOrder(EmitPlan(graph_, {.is_draft = true}));
  }

 private:
  [[noreturn]] static void Throw(std::string what) { throw GraphFault{std::move(what)}; }
  [[noreturn]] void ThrowOf(int node, const std::string& what) const { ThrowOfNode(graph_, node, what); }

  // Weights are packed once, or not at all where a run leaves that out.
  void CheckPacks() const {
    std::vector<bool> is_once(graph_.nodes.size(), false);
    for (const Stage& stage : graph_.stages) {
      for (int n = stage.begin; n < stage.end; ++n) {
        is_once[n] = stage.steps_at_once == kAllSteps;
        const bool is_pack = graph_.nodes[n].kind == StepNode::Kind::kPack;
        if (stage.min_steps != 0 && !is_pack) ThrowOf(n, "short runs leave it out");
      }
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].kind == StepNode::Kind::kPack && !is_once[n]) {
        ThrowOf(static_cast<int>(n), "weights are packed once for all steps");
      }
    }
  }

  void CheckLengths() const {
    int end = 0;
    std::int64_t chunk = 1;
    for (const Stage& stage : graph_.stages) {
      if (stage.begin != end || stage.end < stage.begin) Throw("stages are not in the order of the nodes");
      end = stage.end;
      if (stage.steps_at_once < 0) Throw(StrCat("a stage is for ", stage.steps_at_once, " steps at once"));
      if (stage.steps_at_once <= 1) continue;
      if (chunk > 1 && stage.steps_at_once != chunk) {
        Throw(StrCat("stages are for ", chunk, " and for ", stage.steps_at_once, " steps at once"));
      }
      chunk = stage.steps_at_once;
    }
    if (!graph_.stages.empty() && end != static_cast<int>(graph_.nodes.size())) Throw("some nodes are in no stage");
  }

  // Values that one stage gives to another, or that one takes for several steps at once, are there for all of them.
  // Rows of a block are used again: those of a chunk must lie one behind the other all the same.
  void CheckPassed(int n, int value, const Stage& stage) const {
    if (graph_.backward) ThrowOf(n, StrCat(graph_.NameOf(value), " is passed in a backward step"));
    const auto steps = static_cast<std::uint64_t>(stage.steps_at_once);
    if (stage.steps_at_once == kAllSteps || std::has_single_bit(steps)) return;
    ThrowOf(n, StrCat(graph_.NameOf(value), " is passed by ", steps, " steps at once, which is no power of two"));
  }

  void CheckKept() const {
    std::vector<int> stage_of(graph_.homes.size(), -1);
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      const Stage& stage = graph_.stages[s];
      const bool is_in_turn = stage.steps_at_once == 1 || stage.is_behind;
      for (int n = stage.begin; n < stage.end; ++n) {
        const auto check = [&](int value) {
          const int h = graph_.values[value].home;
          const Home& home = graph_.homes[h];
          const bool is_first = stage_of[h] < 0 || stage_of[h] == static_cast<int>(s);
          stage_of[h] = static_cast<int>(s);
          if (home.passed) CheckPassed(n, value, stage);
          if (home.kind != Home::Kind::kTemporary || home.kept || (is_first && is_in_turn)) return;
          if (home.passed && stage.steps_at_once != kAllSteps) return;
          ThrowOf(n, StrCat(graph_.NameOf(value), " is not kept and is used ",
                            home.passed ? "by all steps at once"
                            : is_first  ? "by several steps at once"
                                        : "by two stages"));
        };
        std::ranges::for_each(graph_.nodes[n].inputs, check);
        std::ranges::for_each(graph_.nodes[n].given(), check);
      }
    }
  }

  const StepGraph& graph_;
};

}  // namespace

void VerifyStages(const StepGraph& graph, bool thorough) { StageVerifier(graph).Run(thorough); }

void VerifyStages(const StepPlan& plan) {
  try {
    CheckOrder(plan);
  } catch (const GraphFault& fault) {
    throw Error(ErrorCode::kInternal, fault.what).At({.net = plan.name});
  }
}

}  // namespace stepnet
