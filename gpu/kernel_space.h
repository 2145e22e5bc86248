// How a kernel goes over the indices of a region: dimensions that one number counts, and what that needs of parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// Neighbouring dimensions of a region that are one for all operands of a kernel.
struct SpaceDim {
  int dim = 0;  // the last of them: its strides are those of all
  std::int64_t size = 0;
};

// The dimensions [first, last) without those of one element, joined where every operand goes through them at one
// stride. Bit d of `apart`: dimension d stays itself.
std::vector<SpaceDim> JoinDims(const RegionIndex& sizes, int first, int last, std::span<const RegionIndex> operands,
                               unsigned apart);
// The product of the sizes.
std::int64_t NumIndices(std::span<const SpaceDim> dims);
// Whether elements of these strides follow each other over all indices.
bool IsDense(std::span<const SpaceDim> dims, const RegionIndex& strides);
// Whether 32 bits hold the places of all elements, from the first, and some more.
bool FitsNarrow(std::span<const SpaceDim> dims, const RegionIndex& strides);
bool FitsNarrow(std::int64_t count);

// A Divisor of device_code.cuh. REQUIRES: 0 < n < 2^31.
std::uint64_t DivisorWord(std::int64_t n);

}  // namespace stepnet
