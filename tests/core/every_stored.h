// All numbers that are stored in 16 bits, for tests of conversions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// The bits of all 65,536.
std::vector<std::uint64_t> EveryStored(DType stored);
// The bits of numbers of another dtype: those that are stored as they are, those in the middle between two, and the
// next ones to all of these; what is beyond, infinities, NaN, denormals.
std::vector<std::uint64_t> NumbersAround(DType stored, DType from);
// Those that casts go to 16 bits from at once.
inline constexpr DType kStoredFrom[] = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64};
// Numbers one after the other in memory.
std::vector<std::byte> Packed(const std::vector<std::uint64_t>& bits, DType dtype);
// "", or the first of the numbers, the input of a region that is one Cast, that is not in `results` what
// EvaluatePrimitive says.
std::string WrongConversion(const Region& region, const std::vector<std::uint64_t>& values, const void* results);

}  // namespace stepnet
