#include "stepnet/core/regions/region_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stepnet {
namespace {

// The dimension that groups are parts of.
int GroupDim(const Region& region) {
  const auto first = std::ranges::find_if(region.sizes, [](std::int64_t size) { return size != 1; });
  return static_cast<int>(std::min<std::ptrdiff_t>(first - region.sizes.begin(), kRegionDims - 1));
}

bool MayHaveGroups(const Region& region) {
  const auto is_sum = [](const RegionOutput& output) { return output.kind == RegionOutputKind::kSums; };
  const auto has_require = [](const Expr& root) { return root->has_require(); };
  return region.NumElements() > 0 && !KnowsPlaces(region) && std::ranges::none_of(region.outputs, is_sum) &&
         std::ranges::none_of(region.Roots(), has_require);
}

std::int64_t MostGroups(const Region& region) {
  const int d = GroupDim(region);
  return d == kRegionDims - 1 && NeedsWholeRows(region) ? 1 : region.sizes[d];
}

// The bytes of a memory that an operand finds in a group: [group * stride + begin, group * stride + end).
struct GroupBytes {
  std::int64_t stride = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool writes = false;
  size_t region = 0;

  bool StaysApart() const { return begin >= 0 && end <= stride; }
};

GroupBytes BytesOf(const Region& region, const RegionOperand& operand, std::int64_t groups) {
  const int d = GroupDim(region);
  std::int64_t last = operand.offset + (region.sizes[d] / groups - 1) * operand.strides[d];
  for (int e = d + 1; e < kRegionDims; ++e) last += (region.sizes[e] - 1) * operand.strides[e];
  const std::int64_t bytes = DTypeBytes(operand.dtype);
  return {.stride = GroupStride(region, operand, groups) * bytes,
          .begin = operand.offset * bytes,
          .end = (last + 1) * bytes};
}

// What the regions touch, by the number of the memory.
std::map<int, std::vector<GroupBytes>> BytesByMemory(std::span<const RegionOfMemory> regions, std::int64_t groups) {
  std::map<int, std::vector<GroupBytes>> found;
  for (size_t k = 0; k < regions.size(); ++k) {
    const auto [region, inputs, outputs] = regions[k];
    const auto add = [&](int memory, const RegionOperand& operand, bool writes) {
      GroupBytes bytes = BytesOf(*region, operand, groups);
      bytes.writes = writes;
      bytes.region = k;
      found[memory].push_back(bytes);
    };
    for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], region->inputs[i], /*writes=*/false);
    for (size_t o = 0; o < outputs.size(); ++o) add(outputs[o], region->outputs[o].memory, /*writes=*/true);
  }
  return found;
}

// What one region alone touches is its own affair.
bool StaysApart(const std::vector<GroupBytes>& of_memory) {
  const auto is_alone = [&](const GroupBytes& bytes) { return bytes.region == of_memory.front().region; };
  const auto writes = [](const GroupBytes& bytes) { return bytes.writes; };
  if (std::ranges::all_of(of_memory, is_alone) || std::ranges::none_of(of_memory, writes)) return true;
  return std::ranges::all_of(of_memory, [&](const GroupBytes& bytes) {
    return bytes.stride == of_memory.front().stride && bytes.StaysApart();
  });
}

}  // namespace

bool NeedsWholeRows(const Region& region) {
  const auto is_of_rows = [](const RegionOutput& output) { return output.kind == RegionOutputKind::kRows; };
  if (std::ranges::any_of(region.outputs, is_of_rows)) return true;
  const std::vector<Expr> roots = region.Roots();
  return std::ranges::any_of(ExprNodes(roots), [](const ExprNode* node) {
    return node->op == ExprOp::kRowSum || node->op == ExprOp::kRowMax;
  });
}

std::int64_t GroupStride(const Region& region, const RegionOperand& operand, std::int64_t groups) {
  const int d = GroupDim(region);
  return region.sizes[d] / groups * operand.strides[d];
}

Region FirstGroup(const Region& region, std::int64_t groups) {
  Region first = region;
  first.sizes[GroupDim(region)] /= groups;
  return first;
}

std::int64_t GroupsApart(std::span<const RegionOfMemory> regions) {
  std::int64_t groups = 0;
  for (const RegionOfMemory& of : regions) {
    if (!MayHaveGroups(*of.region)) return 0;
    groups = std::gcd(groups, MostGroups(*of.region));
  }
  const auto stay_apart = [](const auto& of_memory) { return StaysApart(of_memory.second); };
  return groups > 1 && std::ranges::all_of(BytesByMemory(regions, groups), stay_apart) ? groups : 1;
}

}  // namespace stepnet
