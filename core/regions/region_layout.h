// Where the slots of a region's program lie: how many elements a block has, and the memory of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/regions/region_code.h"

namespace stepnet {

// How many items an array has: one, one a row of a block, one an element of a block, or one an element of a row that
// is cut into blocks and keeps its values from phase to phase.
enum class RegionExtent : std::uint8_t { kOne, kRows, kBlock, kWholeRow };

struct RegionBuffer {
  std::int64_t bytes;  // of an item
  RegionExtent extent;
};
struct RegionConstant {
  Expr value;
  RegionExtent extent;
};

// The slots of a program after those that are memory of operands, in their order.
struct RegionSlots {
  std::vector<RegionConstant> constants;
  std::vector<RegionBuffer> buffers;
  bool has_whole_rows = false;  // there are phases, between which the values of one row are kept
  bool cuts_rows = false;       // likewise, in arrays of their own: a row may be several blocks

  int num_constants() const { return static_cast<int>(constants.size()); }
};

// Chooses parts and the width of blocks, and places all slots. REQUIRES: all else of the code is there.
void LayOutRegion(const RegionSlots& slots, RegionCode* code);

}  // namespace stepnet
