// Fills: operators that make a tensor from nothing but its shape. What they have in common is here.
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

// An operator with one output y and the arguments that say its shape:
// - no input: `shape`;
// - an input: its shape, or its elements where input_as_shape is set; then come the sizes in `extra_shape`.
// The shape rule gives y float, unless FillDType says otherwise.
Operator FillOperator(std::string type, const char* file = __builtin_FILE());

// The same of float or double, with a dtype as FillDType says, and of `min_rank` dimensions at least.
Operator FloatFillOperator(std::string type, int min_rank = 0, const char* file = __builtin_FILE());

// Adds the argument `dtype` and documents it.
Operator& DTypeArg(Operator& op, const char* doc);

// What the shape rule of a fill needs. Throw kInvalidArgument and kShapeMismatch: files and the values of inputs are
// not to be trusted.
Shape FillShape(const ShapeQuery& query);
// The argument `dtype`; else that of an input of float or double whose shape y takes, so that nets run in double as in
// float; else `otherwise`.
DType FillDType(const ShapeQuery& query, DType otherwise);

// Operator::Check takes it: reports what the shape rule finds wrong, where it needs no input.
void CheckFill(const OperatorCall& op, std::vector<NetProblem>* problems);

}  // namespace stepnet
