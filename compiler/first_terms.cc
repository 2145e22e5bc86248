#include "stepnet/compiler/first_terms.h"

#include <algorithm>
#include <map>

namespace stepnet {

void WriteFirstTerms(const StepGraph& graph, StepPlan* plan) {
  std::map<int, Instruction*> first_writers;  // by base
  for (Instruction& instruction : plan->instructions) {
    for (const Operand& output : instruction.outputs) {
      first_writers.emplace(plan->slots[output.slot].base, &instruction);
    }
  }
  for (const Home& home : graph.homes) {
    const int base = home.slot.base;
    const auto zeroed = std::ranges::find_if(plan->before, [&](const PlannedMove& planned) {
      return planned.move.kind == RowMove::Kind::kZero && planned.move.to.base == base;
    });
    if (!home.from_zero || zeroed == plan->before.end()) continue;
    const auto found = first_writers.find(base);
    if (found == first_writers.end() || found->second->steps_at_once != kAllSteps) continue;
    std::vector<Operand>& outputs = found->second->outputs;
    const auto is_term = [&](const Operand& output) { return plan->slots[output.slot].base == base; };
    const auto term = std::ranges::find_if(outputs, is_term);
    if (!term->adds || std::ranges::count_if(outputs, is_term) > 1) continue;
    term->adds = false;
    zeroed->move.only_without_steps = true;
  }
}

}  // namespace stepnet
