// Whether a cell's gradients are finite whatever its steps compute with.
#pragma once

#include "stepnet/cells/cell.h"
#include "stepnet/cells/size_expression.h"

namespace stepnet {

// Whether all operators that an input or a state goes into have finite outputs and gradients wherever what they read is
// finite: as their formulas and those of their gradients say (core/expressions/expr_range.h), and what expansions are
// made of; false where nothing says it. Otherwise a step whose gradient is 0, as it does not count, may still have
// gradients that are NaN: 0 times infinity, as of Sqrt at 0.
bool HasFiniteGradients(const CellDef& cell, const CellSizes& sizes);

}  // namespace stepnet
