#include "stepnet/core/regions/region_places.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// Dimensions [0, num_outer) of the domain as the dimensions [0, num_dims) of a part, both in row-major order.
PlaceResult Align(const Domain& domain, int num_outer, const RegionIndex& sizes, int num_dims) {
  std::int64_t total = 1, wanted = 1;
  for (int d = 0; d < num_outer; ++d) total *= domain.sizes[d];
  for (int d = 0; d < num_dims; ++d) wanted *= sizes[d];
  if (total != wanted) return {};
  PartIndex index = {};
  if (total == 0) return {.index = index};
  int d = num_outer - 1;
  for (int e = num_dims - 1; e >= 0; --e) {
    std::int64_t stride = 1;
    for (std::int64_t left = sizes[e]; left > 1; --d) {
      const std::int64_t size = domain.sizes[d];
      if (left % size != 0) {
        const bool can_cut = size % left == 0 && d < domain.NumOuter();
        return can_cut ? PlaceResult{.cut = CutDimension{.dimension = d, .inner = left}} : PlaceResult{};
      }
      index[e].strides[d] = stride;
      stride *= size;
      left /= size;
    }
  }
  return {.index = index};
}

// What moves slower than a dimension of this stride crosses from one of its elements to the next: at the end of a
// dimension of its own, once that is cut, or nowhere.
std::optional<CutDimension> CutAt(const Domain& domain, const Affine& address, std::int64_t stride) {
  for (int d = 0; d < domain.NumOuter(); ++d) {
    const std::int64_t step = address.strides[d];
    if (step == 0 || stride % step != 0) continue;
    const std::int64_t inner = stride / step;
    if (inner < domain.sizes[d] && domain.sizes[d] % inner == 0) return CutDimension{.dimension = d, .inner = inner};
  }
  return {};
}

Affine RowOf(const Domain& domain) {
  Affine row;
  row.strides[domain.sizes.size() - 1] = 1;
  return row;
}

}  // namespace

Domain::Domain(const RegionIndex& of, bool has_row) : has_row(has_row) {
  const int num_outer = has_row ? kRegionDims - 1 : kRegionDims;
  bool is_empty = false;
  for (int d = 0; d < num_outer; ++d) {
    is_empty |= of[d] == 0;
    if (of[d] != 1) sizes.push_back(of[d]);
  }
  if (is_empty) sizes = {0};
  if (has_row) sizes.push_back(of[kRegionDims - 1]);
}

std::int64_t Domain::NumElements() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return elements;
}

std::int64_t Domain::NumValues(const PartIndex& index) const {
  const auto moves = [&](size_t d) {
    return sizes[d] != 1 && std::ranges::any_of(index, [&](const Affine& along) { return along.strides[d] != 0; });
  };
  if (sizes.empty()) return 1;
  const size_t last = sizes.size() - 1;
  const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end() - 1, std::int64_t{1}, std::multiplies<>());
  if (moves(last)) return rows * sizes[last];
  for (size_t d = 0; d < last; ++d) {
    if (moves(d)) return rows;
  }
  return 1;
}

bool Domain::Cut(const CutDimension& cut) {
  if (sizes.size() == kMaxDomainDims) return false;
  sizes.insert(sizes.begin() + cut.dimension, sizes[cut.dimension] / cut.inner);
  sizes[cut.dimension + 1] = cut.inner;
  return true;
}

Affine Domain::AddressOf(const RegionOperand& operand, const PartIndex& index) const {
  Affine address{.offset = operand.offset};
  for (int e = 0; e < kRegionDims; ++e) {
    address.offset += operand.strides[e] * index[e].offset;
    for (size_t d = 0; d < sizes.size(); ++d) address.strides[d] += operand.strides[e] * index[e].strides[d];
  }
  return address;
}

std::int64_t Domain::Max(const Affine& value) const {
  std::int64_t max = value.offset;
  for (size_t d = 0; d < sizes.size(); ++d) max += value.strides[d] * std::max<std::int64_t>(sizes[d] - 1, 0);
  return max;
}

bool Domain::IsWholeRow(const PartIndex& index, std::int64_t columns) const {
  if (!has_row || sizes.back() != columns) return false;
  if (columns == 1) return true;
  if (!(index[kRegionDims - 1] == RowOf(*this))) return false;
  const size_t row = sizes.size() - 1;
  return std::ranges::all_of(index.begin(), index.end() - 1,
                             [&](const Affine& outer) { return outer.strides[row] == 0; });
}

std::vector<JoinedDimension> Domain::Joined(std::span<const Affine> operands, bool may_join) const {
  std::vector<JoinedDimension> joined = JoinDimensions(
      sizes, {.keeps_row = has_row, .keeps_ones = true, .joins = may_join},
      [&](int outer, int inner, std::int64_t size) {
        return std::ranges::all_of(
            operands, [&](const Affine& operand) { return operand.strides[outer] == operand.strides[inner] * size; });
      });
  std::ranges::reverse(joined);
  return joined;
}

std::string Domain::Text() const { return StrCat("[", Join(sizes, ", "), "]"); }

PlaceResult AlignElements(const Domain& domain, const RegionIndex& sizes, bool keeps_rows) {
  if (!keeps_rows) return Align(domain, static_cast<int>(domain.sizes.size()), sizes, kRegionDims);
  if (!domain.has_row || sizes[kRegionDims - 1] != domain.sizes.back()) return {};
  PlaceResult rows = Align(domain, domain.NumOuter(), sizes, kRegionDims - 1);
  if (rows.index) (*rows.index)[kRegionDims - 1] = RowOf(domain);
  return rows;
}

PlaceResult AlignRows(const Domain& domain, const RegionIndex& sizes) {
  return Align(domain, domain.NumOuter(), sizes, kRegionDims);
}

PartIndex BlocksResult::IndexOf(std::int64_t block) const {
  PartIndex index = *first.index;
  for (int e = 0; e < kRegionDims; ++e) index[e].offset += block * step[e];
  return index;
}

// The part is aligned with the domain and, in front of the columns, a dimension of the blocks, which is taken out
// again.
BlocksResult AlignBlocks(const Domain& domain, const RegionIndex& sizes, std::int64_t columns) {
  constexpr std::int64_t kMaxBlocks = 8;
  const auto product = [](const auto& of) {
    return std::accumulate(of.begin(), of.end(), std::int64_t{1}, std::multiplies<>());
  };
  const std::int64_t elements = product(domain.sizes), wanted = product(sizes);
  if (elements == 0 || wanted % elements != 0 || wanted / elements > kMaxBlocks) return {};
  size_t at = domain.sizes.size();
  for (std::int64_t inner = 1; at > 0 && inner < columns;) inner *= domain.sizes[--at];
  if (product(std::span(domain.sizes).subspan(at)) != columns || domain.sizes.size() == kMaxDomainDims) return {};
  BlocksResult blocks{.count = wanted / elements};
  Domain with_blocks = domain;
  with_blocks.sizes.insert(with_blocks.sizes.begin() + at, blocks.count);
  blocks.first = AlignElements(with_blocks, sizes, /*keeps_rows=*/false);
  const auto block_dimension = static_cast<int>(at);
  if (std::optional<CutDimension>& cut = blocks.first.cut) {
    if (cut->dimension == block_dimension) return {};
    if (cut->dimension > block_dimension) --cut->dimension;
  }
  for (int e = 0; blocks.first.index && e < kRegionDims; ++e) {
    auto& strides = (*blocks.first.index)[e].strides;
    blocks.step[e] = strides[at];
    std::shift_left(strides.begin() + at, strides.end(), 1);
    strides.back() = 0;
  }
  return blocks;
}

PlaceResult IndexAt(const Domain& domain, const Affine& address, const RegionIndex& sizes, const RegionOutput& output) {
  const bool is_of_rows = output.kind == RegionOutputKind::kRows;
  const RegionIndex& strides = output.memory.strides;
  std::vector<int> dims;
  for (int e = 0; e < (is_of_rows ? kRegionDims - 1 : kRegionDims); ++e) {
    if (sizes[e] > 1) dims.push_back(e);
  }
  std::ranges::sort(dims, std::greater<>(), [&](int e) { return strides[e]; });
  PartIndex index = {};
  if (is_of_rows && domain.has_row) index[kRegionDims - 1] = RowOf(domain);
  Affine left = address;
  left.offset -= output.memory.offset;
  if (left.offset < 0) return {};
  for (size_t d = 0; d < domain.sizes.size(); ++d) {
    if (domain.sizes[d] <= 1) left.strides[d] = 0;
  }
  for (const int e : dims) {
    index[e].offset = left.offset / strides[e];
    left.offset %= strides[e];
    for (size_t d = 0; d < domain.sizes.size(); ++d) {
      if (left.strides[d] % strides[e] != 0) continue;
      index[e].strides[d] = left.strides[d] / strides[e];
      left.strides[d] = 0;
    }
    if (domain.Max(left) >= strides[e]) return {.cut = CutAt(domain, left, strides[e])};
    if (domain.Max(index[e]) >= sizes[e]) return {};
  }
  if (domain.Max(left) != 0) return {};
  return {.index = index};
}

}  // namespace stepnet
