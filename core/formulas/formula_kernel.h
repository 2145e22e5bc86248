// What follows from a formula: the kernel for the CPU, and what a declaration leaves out.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// Outputs that a run is for, bit i for output i, as MakeFormulaRegion takes them.
inline std::uint64_t WantedOf(const OpRun& run) {
  std::uint64_t wanted = ~std::uint64_t{0};
  if (run.num_outputs() == 1) return wanted;
  std::uint64_t output = 1;
  for (const TensorView& out : run.outputs()) {
    if (out.shape == nullptr) wanted &= ~output;
    output <<= 1;
  }
  return wanted;
}

// The kernel of an operator whose formula does not say all: it runs that where it applies, and what `otherwise` makes
// elsewhere, as for dtypes that regions do not have.
Kernel FormulaKernelOr(KernelFactory otherwise);

// The kernel of an operator whose formula says all, and which has a faster one written by hand for dtypes that are not
// only stored: inputs of float16 or bfloat16 are for the formula.
Kernel KernelOrFormula(Kernel by_hand);

// A FormulaWhere: the formula is for an input 0 in float16 or bfloat16.
bool AppliesToStored(const OperatorCall& op, DType dtype, const Shape& shape);

// Whether the CPU runs the formula for inputs in 16 bits where input 0 is of this dtype: a kernel written by hand knows
// its own dtypes.
bool RunsFormulaOfStored(const ShapeQuery& query, DType first);

// What the shape rule gives that is declared beside the formula; empty where the formula says it.
std::vector<TensorInfo> DeclaredOutputs(const ShapeQuery& query);

// The shape rule of a type as its declaration says it, with or without CompleteFromFormula. Null: it says none.
ShapeRule DeclaredShapes(const OperatorSchema& schema);

// Adds to a schema that has a formula what its declaration does not say: shapes, cost, rows and the kernel for the CPU.
// What is wrong with the formula shows where shapes are inferred, also where the shape rule is declared.
void CompleteFromFormula(OperatorSchema* schema);

}  // namespace stepnet
