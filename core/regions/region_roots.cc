#include "stepnet/core/regions/region_roots.h"

#include <algorithm>

#include "stepnet/core/expressions/expr_functions.h"

namespace stepnet {
namespace {

// How many simple operations take as long as `op`, about.
double OperationsOf(ExprOp op, double of_function) {
  switch (op) {
    case ExprOp::kInput:
    case ExprOp::kConstant:
    case ExprOp::kLiteral:
    case ExprOp::kIndex: return 0;
    case ExprOp::kDivide:
    case ExprOp::kMod:
    case ExprOp::kPow:
    case ExprOp::kSqrt:
    case ExprOp::kExp:
    case ExprOp::kLog:
    case ExprOp::kTanh:
    case ExprOp::kSigmoid:
    case ExprOp::kErfc:
    case ExprOp::kUniform: return of_function;
    default: break;
  }
  // The C library's functions that are exact are short.
  const ExprFunction* function = FindExprFunction(op);
  return function != nullptr && !function->is_exact ? of_function : 1;
}

}  // namespace

RegionRoots RootsOf(const Region& region, double operations_of_function) {
  RegionRoots found{.roots = region.Roots()};
  for (const Expr& root : found.roots) {
    std::vector<int>& inputs = found.inputs.emplace_back();
    double& operations = found.operations.emplace_back(0);
    for (const ExprNode* node : ExprNodes({&root, 1})) {
      operations += OperationsOf(node->op, operations_of_function);
      if (node->op == ExprOp::kInput) inputs.push_back(node->number);
    }
    found.keeps_rows |= root->has_row_reduction();
    found.has_require |= root->has_require();
  }
  for (const RegionOutput& output : region.outputs) found.keeps_rows |= output.kind != RegionOutputKind::kElements;
  return found;
}

bool ComputesNothing(const Region& region) {
  const auto is_elements = [](const RegionOutput& output) { return output.kind == RegionOutputKind::kElements; };
  return region.NumElements() == 0 && std::ranges::all_of(region.outputs, is_elements);
}

}  // namespace stepnet
