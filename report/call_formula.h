// What an operator of a net computes, by the names of its blobs.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// "c = f * c_prev + i * g", an equation for each output; $0, $1, … are what is computed on the way. Where the formula
// of the type is not said in one line for all its uses, or there is none, the operator itself: "a, b = Split(x,
// axis=-1)". `inputs` and `outputs` are names; an output "_" is left out.
std::vector<std::string> CallFormula(const OperatorCall& call, const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs);

}  // namespace stepnet
