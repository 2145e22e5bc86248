// Groups: what regions that run one after the other keep apart. Each group may go through all of them, whatever the
// others do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// A region among others. Operands that are one memory have one number in all of them.
struct RegionOfMemory {
  const Region* region = nullptr;
  std::vector<int> inputs = {};  // the memory of each
  std::vector<int> outputs = {};
};

// Whether something is computed of whole rows, or for each.
bool NeedsWholeRows(const Region& region);

// How many groups the regions keep apart: so many equal parts has the first dimension of more than one element, in each
// of them, and what one region writes and another one reads or writes is of the same part in both. 1: all is one group.
// 0: they are not to run by groups, because something is added up over rows, checked, or depends on its place.
std::int64_t GroupsApart(std::span<const RegionOfMemory> regions);

// The region that the first group is. Operands of group k begin GroupStride * k elements behind those.
Region FirstGroup(const Region& region, std::int64_t groups);
std::int64_t GroupStride(const Region& region, const RegionOperand& operand, std::int64_t groups);

}  // namespace stepnet
