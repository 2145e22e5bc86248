#include "stepnet/compiler/slot.h"

#include <cstdlib>

#include "stepnet/core/strings.h"

namespace stepnet {

const char* StorageClassName(StorageClass storage_class) {
  switch (storage_class) {
    case StorageClass::kShared: return "shared";
    case StorageClass::kLinked: return "linked";
    case StorageClass::kStacked: return "stacked";
    case StorageClass::kRing: return "ring";
    case StorageClass::kBlock: return "block";
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
  const std::string step =
      slot.offset != 0 ? StrCat("(t", slot.offset < 0 ? " - " : " + ", std::abs(slot.offset), ")") : "t";
  const std::string row = slot.ring_rows > 0 ? StrCat("(", step, " % ", slot.ring_rows, ")") : step;
  return StrCat(slot.base, "[", slot.row_bytes, " * ", row, "]");
}

}  // namespace stepnet
