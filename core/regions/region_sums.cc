#include "stepnet/core/regions/region_sums.h"

#include <algorithm>
#include <vector>

#include "stepnet/core/stored_float.h"

namespace stepnet {

bool HasStoredSums(const Region& region) { return std::ranges::any_of(region.outputs, IsStoredSum); }

Region WithFloatSums(Region region) {
  for (RegionOutput& output : region.outputs) {
    if (IsStoredSum(output)) output.memory.dtype = DType::kFloat;
  }
  return region;
}

std::optional<RegionFault> RunWithFloatSums(const Region& region, std::span<void* const> outputs,
                                            const RunOnOutputs& run) {
  std::vector<void*> to(outputs.begin(), outputs.end());
  std::vector<std::vector<float>> sums(region.outputs.size());
  // Calls fn(a sum in 16 bits, the same as float) for each sum.
  const auto for_sums = [&](const auto& fn) {
    for (size_t o = 0; o < sums.size(); ++o) {
      const RegionOperand& memory = region.outputs[o].memory;
      if (!IsStoredSum(region.outputs[o])) continue;
      sums[o].resize(static_cast<size_t>(memory.size));
      to[o] = sums[o].data();
      ForIndices(TouchedSizes(region, memory, /*is_sum=*/true), [&](const RegionIndex& index) {
        const std::int64_t at = PlaceOf(memory, index);
        fn(region.outputs[o], static_cast<std::uint16_t*>(outputs[o]) + at, &sums[o][at]);
      });
    }
  };
  for_sums([](const RegionOutput& output, const std::uint16_t* stored, float* sum) {
    if (output.adds) *sum = Loaded({.dtype = output.memory.dtype, .bits = *stored});
  });
  const std::optional<RegionFault> fault = run(to);
  for_sums([](const RegionOutput& output, std::uint16_t* stored, const float* sum) {
    *stored = static_cast<std::uint16_t>(Stored(output.memory.dtype, *sum).bits);
  });
  return fault;
}

RegionIndex TouchedSizes(const Region& region, const RegionOperand& operand, bool is_sum) {
  RegionIndex sizes = region.sizes;
  for (int d = 0; d < kRegionDims; ++d) {
    if (operand.strides[d] == 0 && (d == 3 || is_sum)) sizes[d] = 1;
  }
  return sizes;
}

}  // namespace stepnet
