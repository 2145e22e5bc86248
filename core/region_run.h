// Running the program of a region. Pointers are as EvaluateRegion has them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stepnet/core/region_code.h"

namespace stepnet {

using RegionInputs = std::span<const void* const>;
using RegionOutputs = std::span<void* const>;

// Part `part` of `parts`.
std::optional<RegionFault> RunRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, int part,
                                     int parts);
// A part of a flat program, of so many elements.
void RunFlatRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                   int parts);
// The rows [row, last) of a program without sums and requirements.
void RunRegionRows(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, std::int64_t row,
                   std::int64_t last);

}  // namespace stepnet
