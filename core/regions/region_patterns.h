// Patterns: which values of a region are one instruction, because a kernel computes several primitives at once.
#pragma once

#include <span>

#include "stepnet/core/regions/region_values.h"

namespace stepnet {

struct PatternOptions {
  bool has_several = false;  // an instruction may have several results, all of which are needed at once
  // Patterns whose kernels would need values of rows and columns as arrays of elements are left out.
  bool spares_repeated = false;
};
// Gives values of elements patterns and their operands, and marks what these absorb: values that nothing else uses, and
// with `has_several` others that the same instruction computes. REQUIRES: levels and uses are known.
void FindPatterns(std::span<RegionValue> values, const PatternOptions& options);

// Does so for sums over rows that are whole in a block.
void FindRowSums(std::span<RegionValue> values);

// Gives values of elements that read values of rows kernels which do so, and marks those that must be spread because
// somebody has none. It comes last.
void FindRowOperands(std::span<RegionValue> values);

}  // namespace stepnet
