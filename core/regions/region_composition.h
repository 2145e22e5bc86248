// ComposeRegions: several regions that run one after the other as one, in which what one gives to the next is an
// expression and in no memory.
//
//   const RegionPart parts[] = {{.region = sigmoid, .inputs = {0}, .outputs = {1}},   // tensor 1 = Sigmoid(tensor 0)
//                               {.region = multiply, .inputs = {1, 2}, .outputs = {3}}};
//   ComposeRegions(parts, {.wanted = {3}})  // reads tensors 0 and 2, writes tensor 3
//
// The one gives what the parts give one after the other, bit for bit (but for what a NaN holds). It runs over the
// elements of the parts that give what is wanted, cut into dimensions so that every part moves along them. That can be
// done where
// - the parts that give what is wanted, and those that require something, have as many elements as each other, and the
//   sizes of their dimensions divide each other. A part over the rows of one that computes something of whole rows is
//   computed once a row; a part of a few times as many columns, as all gates have beside each of them, in blocks, each
//   beside the others;
// - what reads a tensor that a part gives moves along the dimensions of that part, or blocks of them, or repeats them:
//   the element that it reads at an index must be one and the same sum of offset and index[d] * stride[d] there, for
//   all indices. It may read several blocks of a part: each is an expression of its own. It may not read what lies
//   between the elements that are written, or across the border of two blocks that two outputs give;
// - parts that compute something of whole rows (RowSum, RowMax, outputs of rows, sums over rows) have rows of one
//   length, and what reads them reads whole rows;
// - nothing reads a sum over rows, which is known only when all rows are done;
// - no part is computed much more often than it has elements, because the region is larger or reads it in several ways
//   (CompositionRequest::max_repeated_operations);
// - four dimensions are enough.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// A region with the tensors that its operands lie in, by numbers of the caller. Several inputs, or outputs, may lie in
// one.
struct RegionPart {
  Region region;
  std::vector<int> inputs;
  std::vector<int> outputs;
};

struct CompositionRequest {
  std::vector<int> wanted;                         // tensors that are written, all of each
  std::vector<std::pair<int, int>> in_place = {};  // tensors that are one memory: what is read, what is written
  std::vector<std::string> names = {};             // of tensors, for people; may be empty
  // How many operations of a part, at most, are done for elements that it has computed already.
  double max_repeated_operations = std::numeric_limits<double>::infinity();
  double operations_of_function = 1;  // of Target
};

struct ComposedRegion {
  Region region;
  std::vector<int> inputs;  // the tensor of each input
  std::vector<int> outputs;
};

// Why parts cannot be one region.
struct CompositionObstacle {
  enum class Kind {
    kSizes,       // parts have other numbers of elements, or sizes that do not divide each other
    kAccess,      // what is read is not one element of a part for each index
    kRows,        // rows of another length, or not whole rows
    kSum,         // a sum over rows is read
    kDimensions,  // more than four
    kInPlace,     // memory that is both is not read at the place where it is written, and there alone
    kPlaces,      // a part is read in too many ways
    kRepeats,     // a part would be computed too often
  };
  Kind kind = Kind::kSizes;
  int part = 0;  // that it is about
  std::string what = {};
  std::int64_t region_elements = 0;  // those over which the part does not go; 0: something else is why
};

// The parts run in their order. REQUIRES: CheckRegion of each; a tensor is written by one part at most, before others
// read it. Throws kInvalidArgument for a tensor that is wanted and that no part gives.
std::variant<ComposedRegion, CompositionObstacle> ComposeRegions(std::span<const RegionPart> parts,
                                                                 const CompositionRequest& request);

}  // namespace stepnet
