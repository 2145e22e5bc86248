// Caffe2's legacy broadcasting: operators of two inputs whose second, b, is repeated over the first, a.
//
// With broadcast=1 the sizes of b are those of a contiguous run of a's dimensions, which starts at `axis` (by default
// the last that fit); sizes of 1 at either end of b do not count, and a b of one element meets every element of a.
// Without broadcast the shapes are equal.
#pragma once

#include <utility>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// The arguments broadcast, axis, axis_str and order.
std::vector<ArgumentSpec> BroadcastArguments();

// What these arguments of one operator say.
struct BroadcastRule {
  bool enabled = false;
  int axis = -1;  // -1: b's dimensions are the last of a
};

// Throws kInvalidArgument when they contradict each other. `always`: of SumReduceLike, whose inputs are those of an
// operator that did broadcast, whether it says so or not.
BroadcastRule ReadBroadcastRule(const OperatorCall& op, bool always = false);

// Throws kShapeMismatch, naming both blobs, when input b does not fit input a.
void CheckBroadcast(const ShapeQuery& query, const BroadcastRule& rule, int a = 0, int b = 1);
// The dimensions [begin, end) of b that count: without the sizes of 1 at either end.
std::pair<int, int> CountingDims(const Shape& b);

}  // namespace stepnet
