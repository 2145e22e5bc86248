// What the files that build expressions share.
#pragma once

#include <string_view>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {

// The one node that says this.
Expr SharedNode(ExprFields fields);
Expr ConstantOf(ExprScalar value);

bool IsExprType(DType dtype);     // that expressions compute in
bool IsOperandType(DType dtype);  // that what they read and write may have: these, and IsStoredFloat
// Throws kTypeMismatch, saying `what` and its name, for a dtype that operands do not have.
void CheckOperandType(DType dtype, std::string_view what, std::string_view name = "");

// Operands that are to have one dtype: [begin, end).
struct DTypeGroup {
  int begin = 0;
  int end = 0;
};
DTypeGroup SameDType(ExprOp op, int num_operands);

}  // namespace stepnet
