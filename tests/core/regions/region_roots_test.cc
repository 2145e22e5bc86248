#include "stepnet/core/regions/region_roots.h"

#include <gtest/gtest.h>

#include "stepnet/core/expressions/expr_functions.h"

namespace stepnet {
namespace {

double OperationsOf(const Expr& value) {
  const RegionOperand dense = {.dtype = DType::kFloat, .size = 24, .strides = {0, 0, 6, 1}};
  return RootsOf({.sizes = {1, 1, 4, 6}, .inputs = {dense}, .outputs = {{.value = value, .memory = dense}}}, 8)
      .operations[0];
}

TEST(RegionRoots, CountsFunctionsAsTheTargetSays) {
  const Expr x = Expr::Input(0, "x", DType::kFloat);
  EXPECT_EQ(OperationsOf(x), 0);
  EXPECT_EQ(OperationsOf(x + x * 2), 2);
  EXPECT_EQ(OperationsOf(Tanh(x) + x / 2), 17);
  for (const ExprFunction& function : kExprFunctions) {
    EXPECT_EQ(OperationsOf(MakeExpr(function.op, {&x, 1})), function.is_exact ? 1 : 8) << function.name;
  }
}

}  // namespace
}  // namespace stepnet
