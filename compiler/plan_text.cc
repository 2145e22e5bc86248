#include "stepnet/compiler/plan_text.h"

#include "stepnet/core/cancellation.h"
#include "stepnet/core/printable.h"

namespace stepnet {
namespace {

// What the plan has of memory beside what it is given.
std::string ArenaText(const StepPlan& plan) {
  std::string text;
  for (const ArenaPiece& arena : plan.arena) {
    const std::string size = arena.rows == 0   ? StrCat(arena.row_bytes, " bytes a step")
                             : arena.rows == 1 ? StrCat(arena.row_bytes, " bytes")
                                               : StrCat(arena.rows, " rows of ", arena.row_bytes, " bytes");
    text += StrCat("  base ", arena.base, ": ", size, "\n");
  }
  for (size_t list = 0; list < plan.dynamic_lists.size(); ++list) {
    text += StrCat("  list ", list, ": ", plan.dynamic_lists[list] ? "a blob a step" : "one blob", "\n");
  }
  return text;
}

std::string SlotText(const Slot& slot) {
  const std::string name = StrCat(PrintableLine(slot.blob), ", ", StorageClassName(slot.storage_class));
  switch (slot.storage_class) {
    case StorageClass::kLocal: return name;
    case StorageClass::kDynamic: return StrCat(name, ", list ", slot.base);
    default: return StrCat(name, " at ", AddressText(slot), ", ", slot.bytes, " bytes");
  }
}

std::string SlotNumbers(const std::vector<InstructionOperand>& operands) {
  std::vector<std::string> numbers;
  for (const InstructionOperand& operand : operands) numbers.push_back(StrCat(operand.added ? "+" : "", operand.slot));
  return numbers.empty() ? "nothing" : Join(numbers, ", ");
}

// "s = Sum(x, y): 0, 1 to 2; up to 4 parts".
std::string InstructionText(const Instruction& instruction) {
  std::string text = StrCat(PrintableLine(instruction.text), ": ", SlotNumbers(instruction.inputs), " to ",
                            SlotNumbers(instruction.outputs));
  if (instruction.packed) text += StrCat("; packed in ", instruction.packed->slot);
  if (instruction.by_blobs) text += "; by blobs";
  if (instruction.max_parts > 1) text += StrCat("; up to ", instruction.max_parts, " parts");
  if (instruction.checks_values) text += "; checks values";
  if (instruction.has_side_effects) text += "; has side effects";
  return text;
}

std::string MovesText(const char* title, const std::vector<Instruction>& moves, size_t first_number) {
  std::string text = moves.empty() ? "" : StrCat(title, ":\n");
  for (size_t i = 0; i < moves.size(); ++i) {
    text += StrCat("  ", first_number + i, ": ", PrintableLine(moves[i].text),
                   moves[i].rows->only_without_steps ? ", in runs of no steps\n" : "\n");
  }
  return text;
}

}  // namespace

std::string MovesBeforeText(const StepPlan& plan) {
  return MovesText("before the first step", plan.before, plan.FirstNumberBefore());
}

std::string MovesAfterText(const StepPlan& plan) {
  return MovesText("after the last step", plan.after, plan.FirstNumberAfter());
}

std::string PlanText(const StepPlan& plan) {
  std::string text = StrCat("plan of ", plan.backward ? "backward " : "", "net ", PrintableLine(plan.name), "\n");
  text += ArenaText(plan);
  for (size_t slot = 0; slot < plan.slots.size(); ++slot) {
    text += StrCat("  slot ", slot, ": ", SlotText(plan.slots[slot]), "\n");
  }
  text += MovesBeforeText(plan);
  constexpr std::int64_t kWork = 10'000;  // of one instruction
  for (const Stage& stage : plan.stages) {
    text += StrCat(StageTitle(stage), ":\n");
    for (int i = stage.begin; i < stage.end; ++i) {
      CountWork(kWork);
      text += StrCat("  ", i, ": ", InstructionText(plan.instructions[i]), "\n");
    }
  }
  return text + MovesAfterText(plan);
}

}  // namespace stepnet
