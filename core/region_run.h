// Running the program of a region. Pointers are as EvaluateRegion has them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "stepnet/core/region_code.h"

namespace stepnet {

// Part `part` of `parts` of [0, n).
inline std::pair<std::int64_t, std::int64_t> ShareOf(std::int64_t n, int part, int parts) {
  if (parts == 1) return {0, n};  // without a division of 128 bits
  return {static_cast<std::int64_t>(static_cast<__int128>(n) * part / parts),
          static_cast<std::int64_t>(static_cast<__int128>(n) * (part + 1) / parts)};
}

using RegionInputs = std::span<const void* const>;
using RegionOutputs = std::span<void* const>;

// Part `part` of `parts`.
std::optional<RegionFault> RunRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, int part,
                                     int parts);
// A part of a flat program, of so many elements.
void RunFlatRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                   int parts);
// The rows [first, last).
struct RowRange {
  std::int64_t first;
  std::int64_t last;
};
// Ranges that are not empty, of a program without sums and requirements.
void RunRegionRows(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs,
                   std::span<const RowRange> ranges);

}  // namespace stepnet
