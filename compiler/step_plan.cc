#include "stepnet/compiler/step_plan.h"

#include <cstdlib>
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

std::string AddressText(const Slot& slot) {
  const bool is_same_in_all_steps = slot.row_bytes == 0 && slot.storage_class != StorageClass::kLinked;
  if (is_same_in_all_steps) return StrCat(slot.base);
  const std::string row = slot.ring_rows > 0 ? StrCat("(t % ", slot.ring_rows, ")")
                          : slot.offset != 0 ? StrCat("(t", slot.offset < 0 ? " - " : " + ", std::abs(slot.offset), ")")
                                             : "t";
  return StrCat(slot.base, "[", slot.row_bytes, " * ", row, "]");
}

std::int64_t StepPlan::ArenaBytes(std::int64_t num_steps) const {
  std::int64_t total = 0;
  for (const ArenaPiece& piece : arena) {
    std::int64_t bytes = piece.row_bytes;
    const bool overflow = __builtin_mul_overflow(bytes, piece.rows == 0 ? num_steps : piece.rows, &bytes) ||
                          bytes > std::numeric_limits<std::int64_t>::max() - 63 ||
                          __builtin_add_overflow(total, AlignedBytes(bytes), &total);
    if (overflow) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("the values of ", num_steps, " steps need more than 2^63 bytes"))
          .At({.net = name});
    }
  }
  return total;
}

}  // namespace stepnet
