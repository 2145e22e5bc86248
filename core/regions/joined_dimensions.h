// Dimensions along which all operands move as one are one: fewer dimensions, longer rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stepnet {

// Several dimensions that are one: all of their strides are those of the innermost.
struct JoinedDimension {
  int inner = 0;
  std::int64_t size = 1;
};

struct JoinOptions {
  bool keeps_row = false;   // the last dimension stays apart
  bool keeps_ones = false;  // dimensions of one element stay
  bool joins = true;        // false: all stay apart
};

// From the last dimension to the first. `move_as_one(outer, inner, size)`: whether each operand goes along `outer` as
// it would along `inner` behind `size` elements.
template <typename MoveAsOne>
std::vector<JoinedDimension> JoinDimensions(std::span<const std::int64_t> sizes, const JoinOptions& options,
                                            const MoveAsOne& move_as_one) {
  std::vector<JoinedDimension> joined;
  const int last = static_cast<int>(sizes.size()) - 1;
  for (int d = last; d >= 0; --d) {
    const bool is_row = d == last && options.keeps_row;
    if (sizes[d] == 1 && !is_row && !options.keeps_ones) continue;
    const bool may_join = options.joins && !joined.empty() && !(options.keeps_row && joined.size() == 1);
    if (may_join && move_as_one(d, joined.back().inner, joined.back().size)) {
      joined.back().size *= sizes[d];
    } else {
      joined.push_back({.inner = d, .size = sizes[d]});
    }
  }
  return joined;
}

}  // namespace stepnet
