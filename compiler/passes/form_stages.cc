#include <algorithm>
#include <map>
#include <set>

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/find_stages.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {
namespace {

// Cuts in two the nodes that give sums over the steps and rows, and their instructions: sums can wait until after the
// loop when what goes on in it cannot. Returns where the first halves are; the second ones follow them.
std::set<int> CutSumsOff(StepGraph* graph, StepPlan* draft) {
  std::vector<bool> is_cut;
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    is_cut.push_back(HasSumsAndRows(draft->instructions[n]) && CanLeaveOut(*graph, graph->nodes[n]));
  }
  const size_t num_nodes = graph->nodes.size() + static_cast<size_t>(std::ranges::count(is_cut, true));
  if (num_nodes == graph->nodes.size()) return {};
  std::set<int> halves;
  std::vector<StepNode> nodes;
  std::vector<Instruction> instructions;
  nodes.reserve(num_nodes);
  instructions.reserve(num_nodes);
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    nodes.push_back(std::move(graph->nodes[n]));
    instructions.push_back(std::move(draft->instructions[n]));
    if (!is_cut[n]) continue;
    halves.insert(static_cast<int>(nodes.size()) - 1);
    StepNode rows = nodes.back();
    Instruction of_rows = instructions.back();
    for (const InstructionOperand& output : of_rows.outputs) {
      (output.has_rows ? nodes.back() : rows).outputs[output.position] = kNoValue;
    }
    std::erase_if(of_rows.outputs, [](const InstructionOperand& output) { return !output.has_rows; });
    std::erase_if(instructions.back().outputs, [](const InstructionOperand& output) { return output.has_rows; });
    nodes.push_back(std::move(rows));
    instructions.push_back(std::move(of_rows));
  }
  graph->nodes = std::move(nodes);
  draft->instructions = std::move(instructions);
  return halves;
}

// Halves that one loop runs are whole again.
void JoinHalvesOfLoops(const std::set<int>& halves, std::vector<StageDraft>* stages, StepGraph* graph) {
  for (StageDraft& stage : *stages) {
    if (stage.steps_at_once != 1) continue;
    std::vector<int> kept;  // in their order, so that halves are side by side
    for (const int i : stage.instructions) {
      if (kept.empty() || kept.back() != i - 1 || !halves.contains(i - 1)) {
        kept.push_back(i);
        continue;
      }
      std::vector<int>& outputs = graph->nodes[i - 1].outputs;
      for (size_t o = 0; o < outputs.size(); ++o) {
        if (outputs[o] == kNoValue) outputs[o] = graph->nodes[i].outputs[o];
      }
    }
    stage.instructions = std::move(kept);
  }
}

// Values that one stage gives to another, or that one takes for several steps at once, are there for all of them: in a
// forward plan for those of a block. Stages of a backward plan mostly give to sums, which take all steps at once.
void KeepBetween(const std::vector<StageDraft>& stages, StepGraph* graph) {
  const bool has_blocks = !graph->backward && graph->target->block_bytes > 0;
  std::map<int, size_t> stage_of;  // by home
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const int i : stages[s].instructions) {
      const StepNode& node = graph->nodes[i];
      const auto keep = [&](int value) {
        const int h = graph->values[value].home;
        Home& home = graph->homes[h];
        if (home.kind != Home::Kind::kTemporary) return;
        const size_t first = stage_of.emplace(h, s).first->second;
        if (stages[s].steps_at_once == 1 && first == s) return;
        home.kept = home.kept || !has_blocks || stages[s].steps_at_once == kAllSteps;
        home.passed = !home.kept;
      };
      std::ranges::for_each(node.given(), keep);
      std::ranges::for_each(node.inputs, keep);
    }
  }
}

void Arrange(const std::vector<StageDraft>& stages, StepGraph* graph) {
  std::vector<StepNode> nodes;
  nodes.reserve(graph->nodes.size());
  for (const StageDraft& stage : stages) {
    const auto begin = static_cast<int>(nodes.size());
    for (const int i : stage.instructions) nodes.push_back(std::move(graph->nodes[i]));
    const auto end = static_cast<int>(nodes.size());
    graph->stages.push_back({.begin = begin, .end = end, .steps_at_once = stage.steps_at_once});
  }
  graph->nodes = std::move(nodes);
  graph->FindProducers();
}

// Terms of a sum may have changed places: what runs behind the steps reads the one that comes last now.
void ReadLastTerms(const StepGraph& graph, std::vector<StepNode>* behind) {
  std::map<int, int> last;  // by home
  for (const StepNode& node : graph.nodes) {
    for (const int value : node.given()) {
      const int home = graph.values[value].home;
      if (graph.homes[home].kind == Home::Kind::kSum) last[home] = value;
    }
  }
  for (StepNode& node : *behind) {
    for (int& input : node.inputs) {
      if (const auto sum = last.find(graph.values[input].home); sum != last.end()) input = sum->second;
    }
  }
}

// Finds the stages of a step (compiler/find_stages.h). An operator that gives sums over the steps and rows becomes two
// nodes, which give each a part of its outputs, where these come to be in different stages. What one stage gives to
// another is kept. Rounds otherwise: a product of many rows adds up in another order.
bool FormStages(StepGraph* graph) {
  std::vector<StepNode> behind = graph->TakeBehind(), once = graph->TakeOnce();
  graph->stages.clear();
  StepPlan draft = EmitPlan(*graph, {.is_draft = true});
  const std::set<int> halves = CutSumsOff(graph, &draft);
  std::vector<StageDraft> stages = FindStages(draft);
  JoinHalvesOfLoops(halves, &stages, graph);
  KeepBetween(stages, graph);
  Arrange(stages, graph);
  ReadLastTerms(*graph, &behind);
  if (!once.empty()) graph->AddOnce(std::move(once));
  if (!behind.empty()) graph->AddBehind(std::move(behind));
  return true;
}

const PassRegistration registration({.name = "form_stages", .place = 180, .opt_level = 2, .run = FormStages});

}  // namespace
}  // namespace stepnet
