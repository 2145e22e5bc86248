// Region: pointwise work and row reductions over up to four dimensions, as expressions.
//
// The body is computed at every index of the iteration [sizes[0], …, sizes[3]]; rows are runs along the last dimension.
// Operands say where their element of an index is: offset + sum of index[d] * strides[d], so that rows, columns,
// scalars, blocks of gates and outer products are all one thing: a stride of 0 repeats.
// What a region computes does not depend on who runs it: EvaluateRegion is the definition, RegionProgram
// (core/regions/region_program.h) is fast.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {

inline constexpr int kRegionDims = 4;
using RegionIndex = std::array<std::int64_t, kRegionDims>;

struct RegionOperand {
  DType dtype = DType::kFloat;
  std::int64_t size = 0;    // elements of the memory that it lies in
  std::int64_t offset = 0;  // of the element at index 0, in elements, as strides
  RegionIndex strides = {};
};

enum class RegionOutputKind {
  kElements,  // an element for each index: no stride along a size is 0
  kRows,  // an element for each row, of no element as well; the value is the same for all of it, and the last stride is
          // 0
  kSums,  // the sum of the elements that meet there, one after the other in row-major order, from 0 or what is there;
          // where the last stride is 0, one value for each row, as kRows has it. In 16 bits: of floats, rounded once
};

struct RegionOutput {
  Expr value;
  RegionOperand memory;
  RegionOutputKind kind = RegionOutputKind::kElements;
  bool adds = false;  // kSums: to what the memory holds
};

// An output that may be the memory of an input: with the same offset and strides.
struct RegionInPlace {
  int input = 0;
  int output = 0;
};

struct Region {
  RegionIndex sizes = {1, 1, 1, 1};
  std::vector<RegionOperand> inputs;  // input k of expressions is inputs[k]
  std::vector<RegionOutput> outputs;
  std::vector<Expr> requirements = {};  // Require whose values nothing else uses
  std::vector<RegionInPlace> in_place = {};

  std::int64_t NumRows() const { return sizes[0] * sizes[1] * sizes[2]; }
  std::int64_t NumElements() const { return NumRows() * sizes[3]; }
  // The values of outputs and the requirements.
  std::vector<Expr> Roots() const;
};

// Throws kInvalidArgument for sizes and strides below 0, kShapeMismatch for operands beyond their memory, writes that
// may meet and outputs whose kind does not fit, and kTypeMismatch for dtypes of operands that are not those of the
// expressions; each says which operand it is about.
void CheckRegion(const Region& region);

// Whether some value depends on its place in the region.
bool KnowsPlaces(const Region& region);

// Whether the value depends on the column, but through what is computed of a whole row.
bool VariesInRow(const Region& region, const ExprNode& value);

// The first requirement, by element, that does not hold.
struct RegionFault {
  std::int64_t element = 0;  // row-major
  std::string message = {};
};

// Computes a region element by element. Pointers are to the memory of operands, as `size` counts it. REQUIRES: the
// region has been checked; outputs overlap neither each other's elements nor inputs, but for those that are in place.
std::optional<RegionFault> EvaluateRegion(const Region& region, std::span<const void* const> inputs,
                                          std::span<void* const> outputs);

}  // namespace stepnet
