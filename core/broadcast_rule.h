// Broadcasting: how operators of two inputs, a and b, repeat them over each other.
//
// They are repeated by shape, as NumPy does it: the last dimensions stand for each other, and one of size 1, or one
// that is missing, is repeated over the other's. With broadcast=1 they are as Caffe2 says: b is repeated over a. The
// sizes of b are those of a contiguous run of a's dimensions, which starts at `axis` (by default the last that fit);
// sizes of 1 at either end of b do not count, and a b of one element meets every element of a.
#pragma once

#include <utility>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// The arguments broadcast, axis, axis_str and order.
std::vector<ArgumentSpec> BroadcastArguments();

// What these arguments of one operator say.
struct BroadcastRule {
  bool enabled = false;  // as Caffe2 says
  int axis = -1;         // -1: b's dimensions are the last of a
};

// Throws kInvalidArgument when they contradict each other. `always`: of SumReduceLike, whose inputs are those of an
// operator that did broadcast, whether it says so or not.
BroadcastRule ReadBroadcastRule(const OperatorCall& op, bool always = false);

// The shape of what is computed of inputs a and b. Throws kShapeMismatch, naming both blobs, where they do not fit, and
// where the output is to overwrite one that is repeated by shape.
Shape BroadcastShape(const ShapeQuery& query, const BroadcastRule& rule, int a = 0, int b = 1);
// The shape that all inputs are repeated to by shape. Throws kShapeMismatch, naming two that do not fit, or
// one that is repeated and that the output is to overwrite.
Shape RepeatedShape(const ShapeQuery& query);
// Throws kShapeMismatch, naming both blobs, where b is not repeated over a such that a shape like a's comes out. Where
// the rule gives no axis, by shape or as Caffe2 says.
void CheckRepeated(const ShapeQuery& query, const BroadcastRule& rule, int a = 0, int b = 1);
// Whether b is repeated over a as Caffe2 says, from `axis` on: as a run of its sizes, or one element.
bool IsRunOf(const Shape& b, const Shape& a, int axis = -1);
// Whether b is repeated over a by shape and all of a stays.
bool IsRepeatedOver(const Shape& b, const Shape& a);
// The dimensions [begin, end) of b that count: without the sizes of 1 at either end.
std::pair<int, int> CountingDims(const Shape& b);

}  // namespace stepnet
