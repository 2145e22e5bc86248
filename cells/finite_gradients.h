// Whether a cell's gradients are finite whatever its steps compute with.
#pragma once

#include "stepnet/cells/cell.h"

namespace stepnet {

// Whether all operators that an input or a state goes into have finite outputs and gradients wherever what they read is
// finite; false for operators that nothing is known of. Otherwise a step whose gradient is 0, as it does not count, may
// still have gradients that are NaN: 0 times infinity, as of Sqrt at 0.
bool HasFiniteGradients(const CellDef& cell);

}  // namespace stepnet
