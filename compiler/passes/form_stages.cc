#include <algorithm>
#include <functional>
#include <set>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/stages.h"

namespace stepnet {
namespace {

// `nodes` with those in two that give sums over the steps and rows: sums can wait until after the loop when what goes
// on in it cannot. `draft` has an instruction for each; operators in `whole` are left as they are.
std::vector<StepNode> WithSumsApart(const std::vector<StepNode>& nodes, const StepPlan& draft,
                                    const std::set<int>& whole) {
  std::vector<StepNode> result;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Instruction& instruction = draft.instructions[n];
    if (HasSumsAndRows(instruction) && !whole.contains(nodes[n].op_index)) {
      StepNode sums = nodes[n], rows = nodes[n];
      for (const Operand& output : instruction.outputs) {
        (output.contiguous_rows ? sums : rows).outputs[output.position] = kNoValue;
      }
      result.push_back(std::move(sums));
      result.push_back(std::move(rows));
    } else {
      result.push_back(nodes[n]);
    }
  }
  return result;
}

// The operators that have two nodes in one loop.
std::set<int> TwiceInALoop(const std::vector<StepNode>& nodes, const std::vector<StageDraft>& stages) {
  std::set<int> twice;
  for (const StageDraft& stage : stages) {
    if (stage.steps_at_once != 1) continue;
    std::set<int> ops;
    for (const int i : stage.instructions) {
      const int op_index = nodes[i].op_index;
      if (op_index >= 0 && !ops.insert(op_index).second) twice.insert(op_index);
    }
  }
  return twice;
}

// Values that one stage gives to another, or that one takes for several steps at once, are there for all of them.
void KeepBetween(const std::vector<StageDraft>& stages, StepGraph* graph) {
  std::map<int, size_t> stage_of;  // by home
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const int i : stages[s].instructions) {
      const StepNode& node = graph->nodes[i];
      const auto keep = [&](int value) {
        const int h = graph->values[value].home;
        Home& home = graph->homes[h];
        if (home.kind != Home::Kind::kTemporary) return;
        const size_t first = stage_of.emplace(h, s).first->second;
        if (stages[s].steps_at_once != 1 || first != s) home.kept = true;
      };
      std::ranges::for_each(node.given(), keep);
      std::ranges::for_each(node.inputs, keep);
    }
  }
}

void Arrange(const std::vector<StageDraft>& stages, StepGraph* graph) {
  std::vector<StepNode> nodes;
  for (const StageDraft& stage : stages) {
    const auto begin = static_cast<int>(nodes.size());
    for (const int i : stage.instructions) nodes.push_back(std::move(graph->nodes[i]));
    const auto end = static_cast<int>(nodes.size());
    graph->stages.push_back({.begin = begin, .end = end, .steps_at_once = stage.steps_at_once});
  }
  graph->nodes = std::move(nodes);
  graph->FindProducers();
}

}  // namespace

void FormStages(StepGraph* graph) {
  const StepPlan whole = EmitPlan(*graph, {.is_draft = true});
  std::vector<StageDraft> stages;
  if (std::ranges::none_of(whole.instructions, HasSumsAndRows)) {
    stages = FindStages(whole);
  } else {
    const std::vector<StepNode> nodes = graph->nodes;
    const auto find_stages = [&](const std::set<int>& left_whole) {
      graph->nodes = WithSumsApart(nodes, whole, left_whole);
      return FindStages(EmitPlan(*graph, {.is_draft = true}));
    };
    stages = find_stages({});
    const std::set<int> joined = TwiceInALoop(graph->nodes, stages);
    if (!joined.empty()) stages = find_stages(joined);
  }
  KeepBetween(stages, graph);
  Arrange(stages, graph);
}

}  // namespace stepnet
