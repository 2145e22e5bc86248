// Outputs of regions that have to do with whole rows.
#pragma once

#include "stepnet/core/region.h"

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

}  // namespace stepnet
