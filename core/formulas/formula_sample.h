// What a formula says where no shapes are known yet: for checks of nets, tables, docs and cells.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {

// The shape of inputs in samples, unless another one is asked for.
inline constexpr std::int64_t kSampleRows = 1009;
inline constexpr std::int64_t kSampleColumns = 1013;

// A region, and of what inputs it is.
struct SampledFormula : FormulaRegion {
  std::vector<DType> dtypes = {};
  Shape shape = {};      // of what is read element by element
  bool is_ruled = true;  // the shape rule takes them
};

// What an operator is to be like.
struct SampleRequest {
  std::map<std::string, ArgumentValue> arguments = {};  // others have their defaults
  int left_out = 0;                                     // so many optional inputs, the last ones
  std::optional<DType> dtype = {};       // of all inputs; otherwise the first that fit, floats if they do
  const SampledFormula* like = nullptr;  // with the dtypes of this one, and as the shape rule has it
  std::optional<Shape> shape = {};       // otherwise the first that fits
};

// The region for inputs of shapes that fit, two where there may be any number. Nothing where there is no formula, or
// where it depends on more than that. An operator without inputs gets the shape as an argument where it has to have
// one; and one whose shapes depend on what an input holds gets it there.
std::optional<SampledFormula> SampleFormula(const OperatorSchema& schema, const SampleRequest& request = {});

// That of the default arguments where input `repeated` has one row, which is repeated over those of the others. Nothing
// where the operator has no such input, or does not take one of this shape.
std::optional<FormulaRegion> SampleRepeated(const OperatorSchema& schema, std::string_view repeated);

// Whether elements of the outputs depend on those of the inputs alone that are in their place, when nothing is
// repeated.
bool IsElementwise(const OperatorSchema& schema);

// The dtypes that some inputs of an operator may have, all of them the same.
struct TakenDTypes {
  std::vector<int> inputs = {};
  std::vector<DType> dtypes = {};  // in their order
};
// Those of the inputs of fractions, or else of the first one and those like it, by the shape rule and with the default
// arguments. Nothing where there is no sample, or shapes alone are read.
TakenDTypes DTypesTakenBy(const OperatorSchema& schema);

// Whether an operator of the type may find that its formula divides whole numbers by 0, which no declaration says: as
// far as samples with the default arguments tell.
bool MayDivideByZero(const OperatorSchema& schema);
// Whether this one may, with its arguments; so where no sample tells.
bool MayDivideByZero(const OperatorCall& op);

// What is wrong with the formula of an operator, whatever the shapes and dtypes of its inputs are: the error that it
// throws for all that are tried, without what these were. Nothing where the type has no formula, where one of them
// fits, or where others might. REQUIRES: arity and arguments have been checked.
std::optional<Error> FormulaFault(const OperatorDef& op);
// The same of the type, with the default arguments; nothing where an argument is required.
std::optional<Error> FormulaFault(const OperatorSchema& schema);

}  // namespace stepnet
