// What a formula says where no shapes are known yet: for tables, docs and cells.
#pragma once

#include <cstdint>
#include <optional>

#include "stepnet/core/formula.h"

namespace stepnet {

// The shape of inputs in samples: no formula says these numbers for another reason, so that a text which shows one
// shows the size of a row, or of all.
inline constexpr std::int64_t kSampleRows = 1009;
inline constexpr std::int64_t kSampleColumns = 1013;

// The region for inputs of shapes that fit, two where there may be any number, floats or, where the formula takes none,
// bools, with the default arguments. Nothing where there is no formula, or where it depends on more than that.
std::optional<FormulaRegion> SampleFormula(const OperatorSchema& schema);

// Whether elements of the outputs depend on those of the inputs alone that are in their place, when nothing is
// repeated.
bool IsElementwise(const OperatorSchema& schema);

// What is wrong with the formula of an operator, whatever it is given: the error that it or what is made of it throws.
// Nothing where the type has no formula, or a sample of it can be made.
std::optional<Error> FormulaFault(const OperatorCall& op);
// The same of the type, with the default arguments; nothing where an argument is required.
std::optional<Error> FormulaFault(const OperatorSchema& schema);

}  // namespace stepnet
