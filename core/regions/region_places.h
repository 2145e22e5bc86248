// Places of regions in one another: for ComposeRegions, which index of a part an index of the whole is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/regions/joined_dimensions.h"
#include "stepnet/core/regions/region.h"

namespace stepnet {

inline constexpr int kMaxDomainDims = 12;  // before those that move as one are joined

// offset + sum of index[d] * strides[d], of the indices of a domain.
struct Affine {
  std::int64_t offset = 0;
  std::array<std::int64_t, kMaxDomainDims> strides = {};
  bool operator==(const Affine&) const = default;
};
using PartIndex = std::array<Affine, kRegionDims>;  // along each dimension of a part

// A dimension of the domain that is to be cut in two before an answer can be given: the inner one is to have `inner`
// elements.
struct CutDimension {
  int dimension = 0;
  std::int64_t inner = 1;
};

// Neither: it cannot be.
struct PlaceResult {
  std::optional<PartIndex> index = {};
  std::optional<CutDimension> cut = {};
};

// What is iterated over: as many dimensions as it takes, none of one element but the row.
struct Domain {
  std::vector<std::int64_t> sizes;
  bool has_row = false;  // the last dimension is a row, which is not cut

  Domain() = default;
  Domain(const RegionIndex& of, bool has_row);

  std::int64_t NumElements() const;
  int NumOuter() const { return static_cast<int>(sizes.size()) - (has_row ? 1 : 0); }  // dimensions but the row
  // How often a part is computed at this index: once an element, once a row where the column does not matter, or once.
  std::int64_t NumValues(const PartIndex& index) const;
  // False where that is one dimension too many.
  bool Cut(const CutDimension& cut);
  Affine AddressOf(const RegionOperand& operand, const PartIndex& index) const;
  // The largest value.
  std::int64_t Max(const Affine& value) const;
  // Whether the last dimension of the part, of so many columns, is the row of the domain, and others are not.
  bool IsWholeRow(const PartIndex& index, std::int64_t columns) const;
  // Dimensions, outer ones first, with those as one along which all operands move as one.
  std::vector<JoinedDimension> Joined(std::span<const Affine> operands, bool may_join) const;
  std::string Text() const;  // "[32, 256]"
};

// The elements of a part in their order, as those of the domain; with `keeps_rows` each row is one of the domain.
PlaceResult AlignElements(const Domain& domain, const RegionIndex& sizes, bool keeps_rows);
// The elements of a part as the rows of the domain.
PlaceResult AlignRows(const Domain& domain, const RegionIndex& sizes);

// A part in blocks of columns, of each of which all elements are those of the domain.
struct BlocksResult {
  PlaceResult first = {};
  std::int64_t count = 1;
  RegionIndex step = {};  // from a block to the next, along each dimension of the part

  PartIndex IndexOf(std::int64_t block) const;
};
// Neither where the part has not a few times as many elements as the domain, which are to be blocks of `columns`.
BlocksResult AlignBlocks(const Domain& domain, const RegionIndex& sizes, std::int64_t columns);

// The index of a part over `sizes` at which its output, of elements or rows, writes to `address`; none where it does
// not, or not for all indices in one way.
PlaceResult IndexAt(const Domain& domain, const Affine& address, const RegionIndex& sizes, const RegionOutput& output);

}  // namespace stepnet
