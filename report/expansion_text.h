// What an operator that has no formula is made of, as a line that people read.
#pragma once

#include <string>

#include "stepnet/core/operator.h"

namespace stepnet {

// "y = x * w^T + b", "y = copies of elements of x0, x1": products of matrices, sums over dimensions, copies and
// constants (core/expansion.h), for the first small inputs and required arguments that the operator takes. "" where the
// type declares none of it, or nothing that is tried fits.
std::string ExpansionText(const OperatorSchema& schema);

}  // namespace stepnet
