// A region whose rows are of two kinds, each of which computes something else: those of sequences that have ended, and
// the others.
#pragma once

#include <optional>

#include "stepnet/core/regions/region.h"

namespace stepnet {

struct RegionSplit {
  Region condition;  // gives a bool for each row, one after the other
  Region then;       // what rows compute for which it holds
  Region otherwise;
};

// Where all outputs are a choice by the same condition of rows, and what they choose between takes longer than to look
// for rows: the parts. Their inputs and outputs are those of the region.
std::optional<RegionSplit> SplitByRows(const Region& region);

}  // namespace stepnet
