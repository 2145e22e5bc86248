// Slot: where a value of a step lives, in memory that a run gives to a plan.
//
// Memory is addressed as bases[base] + (t + offset) * row_bytes, so that a link costs nothing at run time.
#pragma once

#include <cstdint>
#include <string>

namespace stepnet {

enum class StorageClass {
  kShared,   // one tensor, the same in all steps: weights, captured tensors
  kLinked,   // rows [t + offset, t + offset + window) of a tensor outside, which may be a ring
  kStacked,  // row t of an arena [T, …]: somebody reads it after the loop
  kRing,     // one of a few rows of an arena that steps use in turn
  kBlock,    // one of as many rows as a block has steps, which these use in turn: another stage of the block reads it
  kDynamic,  // a tensor (or object) a step, of a shape known only then
  kLocal,    // no memory: a region computes and uses the value
};
const char* StorageClassName(StorageClass storage_class);

struct Slot {
  std::string blob;
  StorageClass storage_class = StorageClass::kRing;
  int base = -1;               // index of a base address, or for kDynamic of a list of blobs
  std::int64_t offset = 0;     // rows added to t
  std::int64_t row_bytes = 0;  // from one step to the next; 0 when all steps use the same memory
  std::int64_t ring_rows = 0;  // a power of two: step t uses row t + offset modulo this; 0: rows go on
  std::int64_t bytes = 0;      // one step touches so many at most

  // The row that step t finds.
  std::int64_t RowOf(std::int64_t t) const { return ring_rows > 0 ? (t + offset) & (ring_rows - 1) : t + offset; }
  // Where step 0 begins, in bytes from the base.
  std::int64_t BeginInBase() const { return offset * row_bytes; }
};

// "2" where all steps see the same bytes of base 2; "0[64 * (t + 1)]", or in a ring "0[64 * (t % 16)]" and
// "0[64 * ((t + 1) % 4)]": from which byte of base 0 on step t does.
std::string AddressText(const Slot& slot);

// Whether the two slots show one step some of the same bytes.
bool ShareBytes(const Slot& a, const Slot& b);

}  // namespace stepnet
