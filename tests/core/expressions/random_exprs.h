// Random expressions and numbers, the odd ones among them.
#pragma once

#include <random>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {

inline constexpr DType kExprTypes[] = {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kBool};
inline constexpr DType kStoredTypes[] = {DType::kFloat16, DType::kBFloat16};
inline constexpr DType kOperandTypes[] = {DType::kFloat, DType::kDouble,  DType::kInt32,   DType::kInt64,
                                          DType::kBool,  DType::kFloat16, DType::kBFloat16};

// Any number of dtype: often 0, -0, 1, -1, infinity, NaN, a denormal, the lowest or the greatest.
ExprScalar RandomScalar(DType dtype, std::mt19937& random);
// Equal bits, or two NaN.
bool SameScalar(const ExprScalar& a, const ExprScalar& b);

// One call of a builder: its operands are results of steps before.
struct RandomExprStep {
  ExprOp op;
  ExprParts parts = {};
  std::vector<int> operands = {};
  Expr result = {};
};

struct RandomExprOptions {
  int steps = 20;
  bool reductions = false;    // RowSum, RowMax, Index
  bool only_simple = false;   // no functions of the C library, whose last bits are its own business
  bool requires_too = false;  // Require
  bool stored_too = false;    // Cast from and to kStoredTypes
  bool only_usual = false;    // what programs have kernels of several primitives for, and what leads to it
};

// Starts with `leaves`, and constants. Steps that builders refuse do not count.
std::vector<RandomExprStep> RandomExprSteps(const std::vector<Expr>& leaves, const RandomExprOptions& options,
                                            std::mt19937& random);

}  // namespace stepnet
