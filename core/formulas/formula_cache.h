// Formulas that have been asked: what they say of operators that are alike, and its program, are made once a process
// and shared by all kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stepnet/core/formulas/formula_program.h"
#include "stepnet/core/regions/region_composition.h"

namespace stepnet {

inline constexpr std::uint64_t kWholeOperator = ~std::uint64_t{0};  // all its outputs are wanted

// Gives what MakeFormulaRegion does, whose result is kept among the last ones unless it depends on more than arguments,
// shapes and which operands are the same. `outputs` count where the shape rule reads values (ShapesReadValues); others
// follow from the query.
std::shared_ptr<const FormulaProgram> FindFormula(const ShapeQuery& query, std::uint64_t wanted = kWholeOperator,
                                                  std::span<const TensorInfo> outputs = {});

// What an operator is in a region.
struct OperatorParts {
  std::vector<TensorInfo> outputs = {};  // without their elements, also where these are known
  // Asks its formula or its expansion (core/expansion.h): for copies, or for sums that regions can give; tensors are
  // its inputs, then its outputs, or a RunValue. None: it has none of these, or other dtypes than expressions.
  std::vector<RegionPart> parts = {};
  bool checks_values = false;  // the formula requires something
  bool is_shared = false;      // with operators that are alike
};
std::shared_ptr<const OperatorParts> FindParts(const ShapeQuery& query);

// Whether a run of the operator on such inputs may find bad values: Div of whole numbers may, as its formula says, and
// Div of others may not. Kernel::checks_values says it where neither a formula nor an expansion that copies does.
bool MayFindBadValues(const ShapeQuery& query, const Kernel& kernel);

// Whether the outputs have fewer rows where the inputs have (FormulaRegion::follows_inputs).
bool FollowsInputs(const ShapeQuery& query);

// Whether element i of the outputs depends on element i of the inputs alone: declared, or so by the formula.
bool IsElementwise(const ShapeQuery& query);

}  // namespace stepnet
