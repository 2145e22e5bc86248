// What the gradient of an operator type is made of, as people read it.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// The gradient of an operator of the type whose blobs have the names of its declaration, gradients "d" in front.
struct SampleGradient {
  std::vector<GradientOp> ops = {};
  std::vector<std::string> passed = {};  // inputs whose gradient is that of an output: "dx = dy"
  std::string with = {};                 // values of required arguments, without which it would be another
};
// Found by asking for it: of all outputs, or else of one of them, with all inputs or those that it must have, and for
// arguments that are required with the first values that give a gradient. Throws where there are none such.
SampleGradient SampleGradientOf(const OperatorSchema& schema);

// Operators of the type whose blobs have the names of its declaration: with all inputs, two of a variadic one, then
// with those that they must have, each with all values that are known for arguments that are required.
std::vector<OperatorDef> SampleOperators(const OperatorSchema& schema);

// "ReluGradient", the operators that compute it, where formulas say what they do; else the calls of them, "dx_doubled =
// Scale(dy, scale = 2); dx = Mul(dx_doubled, x)". Or why there are none.
std::string GradientText(const OperatorSchema& schema);
// The formulas of these operators, where they were written as gradients: what Mul computes says nothing of that. "":
// there are none.
std::string GradientFormulaText(const OperatorSchema& schema);

}  // namespace stepnet
