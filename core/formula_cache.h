// Formulas that have been asked: what they say of operators that are alike, and its program, are made once a process
// and shared by all kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "stepnet/core/formula.h"
#include "stepnet/core/region_program.h"

namespace stepnet {

// What the formula of an operator says for inputs of some shapes. Immutable; any number of threads may use it at once.
class FormulaProgram {
 public:
  FormulaProgram(const ShapeQuery& query, FormulaRegion formula);

  const FormulaRegion& formula() const { return formula_; }
  // Whether the program is one for any number of elements, for shapes of which each input has as many elements as each
  // output: then none is repeated, whatever the shapes are.
  bool is_flat() const;
  const RegionProgram& program() const;
  // Into how many parts a run of these shapes may be cut.
  int max_parts() const;

 private:
  void Make() const;

  const FormulaRegion formula_;
  const bool may_be_flat_;
  // Made when it is asked for, because shape rules do not need it.
  mutable std::once_flag once_;
  mutable std::optional<RegionProgram> program_;
  mutable bool is_flat_ = false;
};

// As MakeFormulaRegion, whose result is kept among the last ones unless it depends on more than arguments, shapes and
// which operands are the same.
std::shared_ptr<const FormulaProgram> FindFormula(const ShapeQuery& query, std::span<const TensorInfo> outputs = {},
                                                  std::uint64_t wanted = ~std::uint64_t{0});

// Whether element i of the outputs depends on element i of the inputs alone: declared, or so by the formula.
bool IsElementwise(const ShapeQuery& query);

}  // namespace stepnet
