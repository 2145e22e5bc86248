// What a formula says where no shapes are known yet: for tables, docs and cells.
#pragma once

#include <optional>

#include "stepnet/core/formula.h"

namespace stepnet {

// The region for inputs of shapes that fit, two where there may be any number, floats or, where the formula takes none,
// bools, with the default arguments. Nothing where there is no formula, or where it depends on more than that.
std::optional<FormulaRegion> SampleFormula(const OperatorSchema& schema);

// Whether elements of the outputs depend on those of the inputs alone that are in their place, when nothing is
// repeated.
bool IsElementwise(const OperatorSchema& schema);

}  // namespace stepnet
