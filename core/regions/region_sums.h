// Outputs of regions that have to do with whole rows, and with all of them.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "stepnet/core/floating.h"
#include "stepnet/core/regions/region.h"

namespace stepnet {

// Whether a sum counts its value once for each row: it does not move along the row, which the value is the same for.
inline bool SumsRows(const Region& region, const RegionOutput& output) {
  return output.kind == RegionOutputKind::kSums && output.memory.strides[kRegionDims - 1] == 0 &&
         region.sizes[kRegionDims - 1] != 1;
}

// Whether an output reads its value once for each row.
inline bool IsOfRows(const Region& region, const RegionOutput& output) {
  return output.kind == RegionOutputKind::kRows || SumsRows(region, output);
}

// Whether a sum is of floats, and is rounded to 16 bits when it is complete.
inline bool IsStoredSum(const RegionOutput& output) {
  return output.kind == RegionOutputKind::kSums && IsStoredFloat(output.memory.dtype);
}
bool HasStoredSums(const Region& region);

// The region whose sums that are stored in 16 bits are in memory of floats instead.
Region WithFloatSums(Region region);
// Runs that region: `run` is given the outputs of `region`, with floats in place of what is stored in 16 bits, and all
// its sums are rounded when it returns. They begin at what the memory holds where they add.
using RunOnOutputs = std::function<std::optional<RegionFault>(std::span<void* const>)>;
std::optional<RegionFault> RunWithFloatSums(const Region& region, std::span<void* const> outputs,
                                            const RunOnOutputs& run);

// Sizes along which an operand has elements that a run may touch: what does not move along a dimension may be needed
// though that has none, for rows without elements and sums of no row.
RegionIndex TouchedSizes(const Region& region, const RegionOperand& operand, bool is_sum);

// Calls fn with every index, in row-major order.
template <typename Fn>
void ForIndices(const RegionIndex& sizes, const Fn& fn) {
  RegionIndex index;
  for (index[0] = 0; index[0] < sizes[0]; ++index[0]) {
    for (index[1] = 0; index[1] < sizes[1]; ++index[1]) {
      for (index[2] = 0; index[2] < sizes[2]; ++index[2]) {
        for (index[3] = 0; index[3] < sizes[3]; ++index[3]) fn(index);
      }
    }
  }
}
inline std::int64_t PlaceOf(const RegionOperand& operand, const RegionIndex& index) {
  std::int64_t at = operand.offset;
  for (int d = 0; d < kRegionDims; ++d) at += index[d] * operand.strides[d];
  return at;
}

}  // namespace stepnet
