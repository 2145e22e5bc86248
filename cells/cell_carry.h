// What a cell has to be for its sequences to be run in parts.
#pragma once

#include "stepnet/cells/cell.h"

namespace stepnet {

// Throws kInvalidArgument, with the place of what is in the way, unless states that are carried from one part of a
// sequence to the next give what the whole sequence does.
void CheckCarry(const CellSource& source);

}  // namespace stepnet
