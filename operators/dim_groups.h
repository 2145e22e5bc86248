// Sums over some of a tensor's dimensions.
//
// Neighbouring dimensions that are both kept or both summed count as one, so that a shape is a short list of groups,
// kept and summed in turn. They are summed one after the other, from the last. Where two groups that follow each other
// are summed, the last one is rows: these are summed first, then what they give, one row after the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "stepnet/core/expansion.h"
#include "stepnet/operators/broadcast.h"

namespace stepnet {

// Which dimensions are summed, by index.
using SummedDims = std::array<bool, Shape::kMaxRank>;

struct DimGroups {
  std::array<std::int64_t, Shape::kMaxRank> sizes = {};
  SummedDims summed = {};
  int count = 0;
  std::int64_t summed_size = 1;  // elements of x that one of the output stands for
};

// What sums over these groups are, for Expansion::Sum.
inline DimSum SumOf(int input, const DimGroups& groups, double factor = 1) {
  DimSum sum{.input = input, .factor = factor};
  for (int g = 0; g < groups.count; ++g) {
    sum.sizes.push_back(groups.sizes[g]);
    sum.summed.push_back(groups.summed[g]);
  }
  return sum;
}

// With `has_rows` the last dimension, if it is summed and one before is kept, of whatever size, is a group of its own:
// rows are then what they are for all that is computed of x.
inline DimGroups GroupDims(const Shape& x, const SummedDims& summed, bool has_rows = false) {
  int row = x.rank() - 1;
  while (row >= 0 && x[row] == 1) --row;
  bool is_apart = false;
  for (int i = 0; has_rows && i < row; ++i) is_apart |= summed[row] && !summed[i];
  DimGroups groups;
  for (int i = 0; i < x.rank(); ++i) {
    if (summed[i]) groups.summed_size *= x[i];
    if (groups.count > 0 && groups.summed[groups.count - 1] == summed[i] && !(is_apart && i == row)) {
      groups.sizes[groups.count - 1] *= x[i];
      continue;
    }
    groups.sizes[groups.count] = x[i];
    groups.summed[groups.count++] = summed[i];
  }
  return groups;
}

// Sums [before, size, after], which has elements, to [before, after]. `in_order`, as SumColumns has it.
template <typename T>
void SumMiddle(const T* x, T* out, std::int64_t before, std::int64_t size, std::int64_t after, bool in_order = true) {
  if (size == 1) {
    std::copy_n(x, before * after, out);
  } else if (after == 1) {
    SumRows(x, out, before, size);
  } else {
    for (std::int64_t i = 0; i < before; ++i) SumColumns(x + i * size * after, size, after, in_order, out + i * after);
  }
}

// Sums [before, size] to [before], one element after the other.
template <typename T>
void SumInOrder(const T* x, T* out, std::int64_t before, std::int64_t size) {
  for (std::int64_t i = 0; i < before; ++i, x += size) out[i] = std::accumulate(x, x + size, T{0});
}

// The sums of x, which has elements, to `out`; what comes between goes to the run's scratch.
template <typename T>
void SumGroups(const OpRun& run, const DimGroups& groups, const T* x, T* out) {
  const auto is_summed = [&](int g) { return groups.summed[g] && groups.sizes[g] != 1; };
  int last = 0;  // of those that are summed
  while (last < groups.count && !is_summed(last)) ++last;
  std::int64_t after = 1;
  for (int g = groups.count - 1; g >= 0; --g) {
    if (!is_summed(g)) {
      after *= groups.sizes[g];
      continue;
    }
    std::int64_t before = 1;
    for (int i = 0; i < g; ++i) before *= groups.sizes[i];
    T* to = g == last ? out : run.ScratchOf<T>(before * after);
    if (g + 1 < groups.count && groups.summed[g + 1]) {
      SumInOrder(x, to, before, groups.sizes[g]);
    } else {
      SumMiddle(x, to, before, groups.sizes[g], after, /*in_order=*/g > 0);  // of the first one regions say nothing
    }
    x = to;
  }
  if (x != out) std::copy_n(x, after, out);
}

// The groups of a shape `of` that are summed to that of b, which is repeated over it as CheckRepeated accepts.
inline DimGroups GroupsOfRepeated(const BroadcastRule& rule, const Shape& of, const Shape& b) {
  SummedDims summed = {};
  const bool is_alike =
      b.rank() == of.rank() && rule.axis == -1;  // dimensions of size 1 that both have are kept, as if they were longer
  if (!is_alike && (b.size() == 1 || IsRunOf(b, of, rule.axis))) {
    const int axis = rule.axis == -1 ? of.rank() - b.rank() : rule.axis;
    const auto [begin, end] = CountingDims(b);
    for (int i = 0; i < of.rank(); ++i) summed[i] = b.size() == 1 || i < axis + begin || i >= axis + end;
  } else {
    for (int i = 0; i < of.rank(); ++i) {
      const int of_b = i - of.rank() + b.rank();
      summed[i] = of_b < 0 || (of[i] != 1 && b[of_b] == 1);
    }
  }
  return GroupDims(of, summed, /*has_rows=*/true);
}

// The sums of a, which has the shape `of`, to that of b, likewise.
template <typename T>
void SumRepeated(const OpRun& run, const BroadcastRule& rule, const T* a, const Shape& of, T* out, const Shape& b) {
  if (of.size() == 0) {
    std::fill_n(out, b.size(), T{0});
  } else {
    SumGroups(run, GroupsOfRepeated(rule, of, b), a, out);
  }
}

}  // namespace stepnet
