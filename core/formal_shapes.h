// Shapes that follow from what a declaration says of inputs and outputs (OfTypes, Like).
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

// Adds to a schema the shape rule that checks what is said of its inputs and gives what is said of its outputs; outputs
// of which too little is said are for the shape rule that is declared or for the formula. Leaves a schema as it is of
// which nothing is said.
void CompleteFromFormals(OperatorSchema* schema);

// What is wrong with what a declaration says of inputs and outputs, or "": that one is like what is no input.
std::string FormalProblem(const OperatorSchema& schema);

}  // namespace stepnet
