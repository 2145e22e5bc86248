#include "stepnet/gpu/kernel_space.h"

#include <algorithm>
#include <bit>

namespace stepnet {
namespace {

// Threads of the last block and lanes of the last warp count a little further.
constexpr std::int64_t kNarrowLimit = (std::int64_t{1} << 31) - 4096;

// Whether `dim` can be joined to the one before it.
bool IsJoined(const RegionIndex& sizes, int before, int dim, std::span<const RegionIndex> operands) {
  return std::ranges::all_of(operands, [&](const RegionIndex& strides) {
    std::int64_t stride = 0;
    return !__builtin_mul_overflow(strides[dim], sizes[dim], &stride) && strides[before] == stride;
  });
}

}  // namespace

std::vector<SpaceDim> JoinDims(const RegionIndex& sizes, int first, int last, std::span<const RegionIndex> operands,
                               unsigned apart) {
  std::vector<SpaceDim> dims;
  for (int d = first; d < last; ++d) {
    if (sizes[d] == 1) continue;
    const bool may_join = !dims.empty() && ((apart >> d | apart >> dims.back().dim) & 1) == 0;
    if (may_join && IsJoined(sizes, dims.back().dim, d, operands)) {
      dims.back() = {.dim = d, .size = dims.back().size * sizes[d]};
    } else {
      dims.push_back({.dim = d, .size = sizes[d]});
    }
  }
  return dims;
}

std::int64_t NumIndices(std::span<const SpaceDim> dims) {
  std::int64_t count = 1;
  for (const SpaceDim& dim : dims) count *= dim.size;
  return count;
}

bool IsDense(std::span<const SpaceDim> dims, const RegionIndex& strides) {
  std::int64_t stride = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    if (strides[dims[k].dim] != stride) return false;
    stride *= dims[k].size;
  }
  return true;
}

bool FitsNarrow(std::span<const SpaceDim> dims, const RegionIndex& strides) {
  std::int64_t place = 0;
  for (const SpaceDim& dim : dims) place += std::max<std::int64_t>(dim.size - 1, 0) * strides[dim.dim];
  return FitsNarrow(place);
}

bool FitsNarrow(std::int64_t count) { return count < kNarrowLimit; }

std::uint64_t DivisorWord(std::int64_t n) {
  const auto divisor = static_cast<std::uint64_t>(n);
  const int shift = std::bit_width(divisor - 1);
  const std::uint64_t factor = ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - divisor)) / divisor + 1;
  return factor | static_cast<std::uint64_t>(shift) << 32;
}

}  // namespace stepnet
