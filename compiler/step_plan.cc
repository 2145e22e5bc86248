#include "stepnet/compiler/step_plan.h"

#include <limits>

namespace stepnet {

const char* StorageClassName(StorageClass storage_class) {
  switch (storage_class) {
    case StorageClass::kShared: return "shared";
    case StorageClass::kLinked: return "linked";
    case StorageClass::kStacked: return "stacked";
    case StorageClass::kRing: return "ring";
    case StorageClass::kDynamic: return "dynamic";
    case StorageClass::kLocal: return "local";
  }
  return "unknown";
}

bool ShareBytes(const Slot& a, const Slot& b) {
  return a.storage_class != StorageClass::kDynamic && b.storage_class != StorageClass::kDynamic && a.base == b.base &&
         a.BeginInBase() < b.BeginInBase() + b.bytes && b.BeginInBase() < a.BeginInBase() + a.bytes;
}

std::string StageTitle(const Stage& stage) {
  if (stage.steps_at_once == kAllSteps) return "once for all steps";
  return stage.steps_at_once == 1 ? "in each step" : StrCat("for ", stage.steps_at_once, " steps at once");
}

std::int64_t StepPlan::ArenaBytes(std::int64_t num_steps) const {
  std::int64_t total = 0;
  for (const ArenaSlot& slot : arena) {
    std::int64_t bytes = slot.row_bytes;
    const bool overflow = __builtin_mul_overflow(bytes, slot.rows == 0 ? num_steps : slot.rows, &bytes) ||
                          bytes > std::numeric_limits<std::int64_t>::max() - 63 ||
                          __builtin_add_overflow(total, AlignedBytes(bytes), &total);
    if (overflow) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("the values of ", num_steps, " steps need more than 2^63 bytes"))
          .At({.net = name});
    }
  }
  return total;
}

std::string StepPlan::ToString() const {
  std::string text = StrCat(backward ? "backward " : "", "plan ", name, " {\n");
  for (const Slot& slot : slots) {
    text += StrCat("  ", slot.blob, ": ", StorageClassName(slot.storage_class));
    if (slot.storage_class == StorageClass::kLinked) text += StrCat(" t", slot.offset >= 0 ? "+" : "", slot.offset);
    const bool has_size = slot.storage_class != StorageClass::kDynamic && slot.storage_class != StorageClass::kLocal;
    if (has_size) text += StrCat(", ", slot.bytes, " bytes");
    text += "\n";
  }
  const auto add_moves = [&text](const char* title, const std::vector<PlannedMove>& moves) {
    if (!moves.empty()) text += StrCat("  ", title, ":\n");
    for (const PlannedMove& planned : moves) text += StrCat("  ", planned.text, "\n");
  };
  add_moves("before the first step", before);
  for (const Stage& stage : stages) {
    if (stages.size() > 1) text += StrCat("  ", StageTitle(stage), ":\n");
    for (int i = stage.begin; i < stage.end; ++i) text += StrCat("  ", instructions[i].text, "\n");
  }
  add_moves("after the last step", after);
  return text + "}\n";
}

}  // namespace stepnet
