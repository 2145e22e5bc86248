#include "stepnet/compiler/schedule_text.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/compiler/simulation.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/printable.h"

namespace stepnet {
namespace {

std::string Fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// How many of the first `max_bytes` bytes of `line` can stand before a line break that is within a name.
size_t WholeCharacters(std::string_view line, size_t max_bytes) {
  size_t bytes = max_bytes;
  while (bytes > 1 && (line[bytes] & 0xc0) == 0x80) --bytes;
  return bytes;
}

// The lines of `raw`, printable; those of more columns broken, further in, at blanks or, where a name alone is longer,
// within it.
std::string Wrapped(const std::string& raw) {
  constexpr size_t kColumns = 100;
  constexpr size_t kFurther = 4;
  const std::string text = Printable(raw);
  std::string wrapped;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);  // what is left of it
    size_t indent = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(indent);
    wrapped.append(indent, ' ');
    for (bool is_first = true;;) {
      const size_t columns = kColumns > indent ? kColumns - indent : 1;
      if (line.size() <= columns) break;
      CountWork(static_cast<std::int64_t>(columns));
      const size_t blank = line.rfind(' ', columns);
      const bool has_blank = blank != std::string_view::npos && blank > 0;
      const size_t whole = has_blank ? blank : WholeCharacters(line, columns);
      wrapped += line.substr(0, whole);
      line.remove_prefix(has_blank ? blank + 1 : whole);
      if (std::exchange(is_first, false)) indent += kFurther;
      wrapped.append(1, '\n').append(indent, ' ');
    }
    wrapped.append(line).append(1, '\n');
    begin = end + 1;
  }
  return wrapped;
}

std::string PlaceText(const StepPlan& plan, std::int64_t steps_at_once, const InstructionOperand& operand) {
  const Slot& slot = plan.slots[operand.slot];
  std::string text = StrCat(PrintableLine(slot.blob), " (", StorageClassName(slot.storage_class));
  if (slot.storage_class == StorageClass::kLinked) text += StrCat(" t", slot.offset >= 0 ? "+" : "", slot.offset);
  if (slot.ring_rows > 0) text += StrCat(" of ", slot.ring_rows);
  if (slot.storage_class != StorageClass::kDynamic) {
    text += StrCat(", ", operand.info.size_bytes(), " bytes");
    if (steps_at_once != 1 && operand.has_rows) text += " a step";
  }
  return text + ")";
}

std::string PlacesText(const StepPlan& plan, std::int64_t steps_at_once,
                       const std::vector<InstructionOperand>& operands) {
  std::vector<std::string> places;
  for (const InstructionOperand& operand : operands) places.push_back(PlaceText(plan, steps_at_once, operand));
  return Join(places, ", ");
}

// "a_t as a_prev (4096 bytes)": the blob as the earlier one calls it and, where that differs, the later one.
std::string BlobText(const StepPlan& plan, const Dependency& edge) {
  if (edge.from_slot < 0) return "what is outside of the step";
  const Slot& slot = plan.slots[edge.from_slot];
  std::string text = PrintableLine(slot.blob);
  if (plan.slots[edge.to_slot].blob != slot.blob) text += " as " + PrintableLine(plan.slots[edge.to_slot].blob);
  if (slot.storage_class != StorageClass::kDynamic && edge.bytes > 0) text += StrCat(" (", edge.bytes, " bytes)");
  return text;
}

// "the longest chain (…): 0, 1, 2, of the next step 0, …"
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
  return StrCat("the longest chain (each waits for the one before): ", Join(items, ", "), "\n");
}

// Steps overlap where one that begins before the last one has ended makes the run shorter.
bool StepsOverlap(const Schedule& schedule, const Target& target) {
  const double overlapping = CriticalMicroseconds(schedule, StepsUnderWay(schedule, schedule.threads, target));
  return overlapping * target.min_gain_of_overlap < CriticalMicroseconds(schedule, 1);
}

// "after 4 of 1 step before: read after write of h (4096 bytes)", where edges are between steps or between chunks.
std::string AfterText(const StepPlan& plan, const Dependency& edge, const std::string& from, const std::string& unit) {
  const std::string when =
      edge.delta == 0 ? "" : StrCat(" of ", edge.delta, " ", unit, edge.delta == 1 ? "" : "s", " before");
  return StrCat("      after ", from, when, ": ", DependencyKindName(edge.kind), " of ", BlobText(plan, edge), "\n");
}

std::string InstructionText(const StepPlan& plan, const Schedule& schedule, int i, int task) {
  const Instruction& instruction = plan.instructions[i];
  std::string text = StrCat("  ", i, ": ", PrintableLine(instruction.text), "\n      task ", task);
  const int parts = schedule.tasks[task].parts;
  if (parts > 1)
    text += StrCat(schedule.sharing == Sharing::kBatch ? " for rows of the batch, in " : " in ", parts, " parts");
  if (const int cuts = schedule.tasks[task].cuts; cuts > 1) text += StrCat(", each cut in ", cuts);
  text += StrCat("; reads ", PlacesText(plan, instruction.steps_at_once, instruction.inputs), "; writes ",
                 PlacesText(plan, instruction.steps_at_once, instruction.outputs), "\n");
  for (const Dependency& edge : schedule.dependencies.edges) {
    if (edge.to == i) text += AfterText(plan, edge, StrCat(edge.from), "step");
  }
  return text;
}

std::string StageText(const StepPlan& plan, const Stage& stage, const Schedule& schedule) {
  std::vector<int> task_of(plan.instructions.size());
  for (size_t t = 0; t < schedule.tasks.size(); ++t) {
    for (const int i : schedule.tasks[t].instructions) task_of[i] = static_cast<int>(t);
  }
  std::string text;
  if (plan.stages.size() > 1) text = StageTitle(stage) + ":\n";
  for (int i = stage.begin; i < stage.end; ++i) text += InstructionText(plan, schedule, i, task_of[i]);
  text += StrCat("a step: ", Fixed(schedule.step_microseconds), " us of work (estimate), ");
  if (schedule.sharing == Sharing::kTasks) {
    const double critical = CriticalMicroseconds(schedule, StepsUnderWay(schedule, schedule.threads, *plan.target));
    text += StrCat(Fixed(critical), " us in the longest chain: at most ",
                   Fixed(critical > 0 ? schedule.step_microseconds / critical : 1), " threads busy\n",
                   ChainText(LongestChain(schedule)));
  } else {  // each thread goes through all of it, in the order of the instructions
    double in_parts = 0;
    for (const Task& task : schedule.tasks) in_parts += task.microseconds / task.parts;
    text += StrCat(Fixed(in_parts), " us on ", schedule.threads, " threads\n");
  }
  const std::string shorter = ShorterRunsText(plan, schedule);
  return shorter.empty() ? text : StrCat(text, shorter, "\n");
}

// Which stage waits for which, where they overlap; by the numbers of their instructions.
std::string PipelineText(const StepPlan& plan) {
  const auto name = [&](const Stage& stage) {
    return stage.end - stage.begin == 1 ? StrCat(stage.begin) : StrCat(stage.begin, " to ", stage.end - 1);
  };
  std::string text = StrCat("stages overlap, each with ", plan.chunk_steps, " steps at a time, a chunk:\n");
  for (const Task& task : plan.pipeline->tasks) {
    text += StrCat("  ", name(plan.stages[task.stage]), "\n");
    for (const Dependency& edge : plan.pipeline->dependencies.edges) {
      if (edge.to == task.stage) text += AfterText(plan, edge, name(plan.stages[edge.from]), "chunk");
    }
  }
  return text;
}

// An arrow from one instruction to another, `what` before the blob that it is for.
std::string EdgeDot(const StepPlan& plan, const Dependency& edge, int from, int to, const std::string& what) {
  const std::string later = edge.delta == 0 ? "" : StrCat("+", edge.delta, " ");
  return StrCat("  i", from, " -> i", to, " [label=", DotText(later + what + BlobText(plan, edge)),
                edge.delta == 0 ? "" : ", style=dashed, constraint=false", "];\n");
}

}  // namespace

std::string ShorterRunsText(const StepPlan& plan, const Schedule& schedule) {
  const bool has_threads = plan.target->device == DeviceKind::kCpu && schedule.threads > 1;
  if (!has_threads || schedule.min_steps <= Schedule().min_steps) return "";
  if (plan.pipeline != nullptr && plan.pipeline->min_steps <= schedule.min_steps) return "";
  const char* how = "one thread";
  if (schedule.of_shorter_runs != nullptr && schedule.of_shorter_runs->threads > 1) how = "threads share tasks";
  const Schedule* const shorter = plan.pipeline_of_shorter_runs.get();
  if (shorter != nullptr && shorter->min_steps < schedule.min_steps) how = "stages overlap";
  return StrCat("runs of fewer than ", schedule.min_steps, " steps: ", how);
}

std::string ThreadsText(const StepPlan& plan) {
  int threads = plan.pipeline != nullptr ? plan.pipeline->threads : 1;
  bool steps_overlap = false;
  std::set<Sharing> sharing;
  std::int64_t parts = 0, at_once = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const Schedule& schedule = *plan.schedules[s];
    if (stage.steps_at_once != 1) at_once += stage.end - stage.begin;
    const bool overlaps = plan.pipeline != nullptr && stage.steps_at_once != kAllSteps;
    if (overlaps || schedule.threads < 2) continue;
    threads = std::max(threads, schedule.threads);
    sharing.insert(schedule.sharing);
    const bool may_overlap = stage.steps_at_once == 1 && schedule.sharing == Sharing::kTasks;
    steps_overlap = steps_overlap || (may_overlap && StepsOverlap(schedule, *plan.target));
    if (schedule.sharing == Sharing::kBatch) continue;
    for (const Task& task : schedule.tasks) parts += task.parts > 1 ? std::ssize(task.instructions) : 0;
  }
  const std::string of_all = StrCat(" of ", plan.instructions.size(), " instructions");
  std::string text = threads < 2 ? "one thread" : StrCat(threads, " threads");
  if (plan.target->device != DeviceKind::kCpu) text = StrCat("one queue of ", DeviceKindName(plan.target->device));
  if (plan.pipeline != nullptr) text += ", stages overlap";
  if (steps_overlap) text += ", steps overlap";
  if (sharing.contains(Sharing::kBatch)) text += ", each with rows of the batch";
  if (sharing.contains(Sharing::kLockstep)) text += ", in lockstep";
  if (parts > 0) text += StrCat(", ", parts, of_all, " in parts");
  if (at_once > 0) text += StrCat(", ", at_once, parts > 0 ? "" : of_all, " for many steps at once");
  return text;
}

std::string ScheduleText(const StepPlan& plan) {
  std::string text =
      StrCat("schedule of ", plan.backward ? "backward " : "", "net ", plan.name, ", ", ThreadsText(plan), "\n");
  for (size_t s = 0; s < plan.stages.size(); ++s) text += StageText(plan, plan.stages[s], *plan.schedules[s]);
  if (plan.pipeline != nullptr) text += PipelineText(plan);
  return Wrapped(text + MovesBeforeText(plan) + MovesAfterText(plan));
}

std::string ScheduleDot(const StepPlan& plan) {
  std::string text = StrCat("digraph ", DotText(plan.name), " {\n  node [shape=box];\n");
  int number = 0;  // of tasks
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Schedule& schedule = *plan.schedules[s];
    std::set<int> in_chain;
    for (const ChainLink& link : LongestChain(schedule)) in_chain.insert(link.instruction);
    for (const Task& task : schedule.tasks) {
      const std::string label =
          StrCat("task ", number, plan.stages.size() > 1 ? ", " + StageTitle(plan.stages[s]) : "");
      text += StrCat("  subgraph cluster_", number++, " {\n    label=", DotText(label), ";\n");
      for (const int i : task.instructions) {
        text += StrCat("    i", i, " [label=", DotText(plan.instructions[i].text),
                       in_chain.contains(i) ? ", penwidth=2" : "", "];\n");
      }
      text += "  }\n";
    }
    for (const Dependency& edge : schedule.dependencies.edges) text += EdgeDot(plan, edge, edge.from, edge.to, "");
  }
  if (plan.pipeline == nullptr) return text + "}\n";
  // An edge of the pipeline goes from the last instruction of a stage to the first one of another.
  for (const Dependency& edge : plan.pipeline->dependencies.edges) {
    text += EdgeDot(plan, edge, plan.stages[edge.from].end - 1, plan.stages[edge.to].begin, "chunk of ");
  }
  return text + "}\n";
}

}  // namespace stepnet
