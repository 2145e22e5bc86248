#include "stepnet/executor/schedule_text.h"

#include <algorithm>
#include <cstdio>
#include <set>

namespace stepnet {
namespace {

std::string Fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string PlaceText(const StepPlan& plan, const Operand& operand) {
  const Slot& slot = plan.slots[operand.slot];
  std::string text = StrCat(slot.blob, " (", StorageClassName(slot.storage_class));
  if (slot.storage_class == StorageClass::kLinked) text += StrCat(" t", slot.offset >= 0 ? "+" : "", slot.offset);
  if (slot.ring_rows > 0) text += StrCat(" of ", slot.ring_rows);
  if (slot.storage_class != StorageClass::kDynamic) {
    text += StrCat(", ", operand.info.shape.size() * DTypeBytes(operand.info.dtype), " bytes");
  }
  return text + ")";
}

std::string PlacesText(const StepPlan& plan, const std::vector<Operand>& operands) {
  std::vector<std::string> places;
  for (const Operand& operand : operands) places.push_back(PlaceText(plan, operand));
  return Join(places, ", ");
}

std::string BlobText(const StepPlan& plan, const Dependency& edge) {
  return edge.slot >= 0 ? plan.slots[edge.slot].blob : "what is outside of the step";
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// "the longest chain: 0, 1, 2, of the next step 0, …"
std::string ChainText(const std::vector<ChainLink>& chain) {
  if (chain.empty()) return "";
  const auto item = [](const ChainLink& link) {
    if (link.delta == 0) return StrCat(link.instruction);
    const std::string when = link.delta == 1 ? "the next step" : StrCat(link.delta, " steps later");
    return StrCat("of ", when, " ", link.instruction);
  };
  std::vector<std::string> items = {StrCat(chain.front().instruction)};
  for (size_t i = 1; i < chain.size(); ++i) items.push_back(item(chain[i]));
  if (chain.front().delta > 0) items.push_back(item(chain.front()) + " again");
  return StrCat("the longest chain: ", Join(items, ", "), "\n");
}

}  // namespace

std::string ThreadsText(const Schedule& schedule) {
  if (schedule.threads < 2) return "one thread";
  std::string text = StrCat(schedule.threads, " threads");
  // Steps overlap where one that begins before the last one has ended makes the run shorter.
  constexpr double kLeastGain = 1.05;
  const double overlapping = CriticalMicroseconds(schedule, StepsUnderWay(schedule.threads));
  if (overlapping * kLeastGain < CriticalMicroseconds(schedule, 1)) text += ", steps overlap";
  const auto parts = std::ranges::count_if(schedule.tasks, [](const Task& task) { return task.parts > 1; });
  if (parts > 0) {
    text += StrCat(", ", parts, " of ", schedule.dependencies.num_instructions, " instructions in parts");
  }
  return text;
}

std::string ScheduleText(const StepPlan& plan, const Schedule& schedule) {
  std::vector<int> task_of(plan.instructions.size());
  for (size_t t = 0; t < schedule.tasks.size(); ++t) {
    for (const int i : schedule.tasks[t].instructions) task_of[i] = static_cast<int>(t);
  }
  std::string text =
      StrCat("schedule of ", plan.backward ? "backward " : "", "net ", plan.name, ", ", ThreadsText(schedule), "\n");
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    const Task& task = schedule.tasks[task_of[i]];
    text += StrCat("  ", i, ": ", instruction.text, "\n      task ", task_of[i]);
    if (task.parts > 1) text += StrCat(" in ", task.parts, " parts");
    text += StrCat("; reads ", PlacesText(plan, instruction.inputs), "; writes ", PlacesText(plan, instruction.outputs),
                   "\n");
    for (const Dependency& edge : schedule.dependencies.edges) {
      if (edge.to != static_cast<int>(i)) continue;
      const std::string when =
          edge.delta == 0 ? "" : StrCat(" of ", edge.delta, edge.delta == 1 ? " step" : " steps", " before");
      text += StrCat("      after ", edge.from, when, ": ", DependencyKindName(edge.kind), " of ", BlobText(plan, edge),
                     "\n");
    }
  }
  const double critical = CriticalMicroseconds(schedule, StepsUnderWay(schedule.threads));
  text += StrCat("a step: ", Fixed(schedule.step_microseconds), " us of work (estimate), ", Fixed(critical),
                 " us in the longest chain: at most ", Fixed(critical > 0 ? schedule.step_microseconds / critical : 1),
                 " threads busy\n");
  return text + ChainText(LongestChain(schedule));
}

std::string ScheduleDot(const StepPlan& plan, const Schedule& schedule) {
  std::set<int> in_chain;
  for (const ChainLink& link : LongestChain(schedule)) in_chain.insert(link.instruction);
  std::string text = StrCat("digraph ", Quoted(plan.name), " {\n  node [shape=box];\n");
  for (size_t t = 0; t < schedule.tasks.size(); ++t) {
    text += StrCat("  subgraph cluster_", t, " {\n    label=", Quoted(StrCat("task ", t)), ";\n");
    for (const int i : schedule.tasks[t].instructions) {
      text += StrCat("    i", i, " [label=", Quoted(plan.instructions[i].text),
                     in_chain.contains(i) ? ", penwidth=2" : "", "];\n");
    }
    text += "  }\n";
  }
  for (const Dependency& edge : schedule.dependencies.edges) {
    text += StrCat("  i", edge.from, " -> i", edge.to, " [label=",
                   Quoted(edge.delta == 0 ? BlobText(plan, edge) : StrCat("+", edge.delta, " ", BlobText(plan, edge))),
                   edge.delta == 0 ? "" : ", style=dashed, constraint=false", "];\n");
  }
  return text + "}\n";
}

}  // namespace stepnet
