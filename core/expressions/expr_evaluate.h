// The executable definition of expressions: slow and plain. Constants are folded by it, and tests hold kernels against
// it, bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {

// What `op` gives for these numbers, as a `dtype`. REQUIRES: operands as MakeExpr accepts them, and an op that depends
// on nothing else: no input, constant, index, Require or reduction of rows.
ExprScalar EvaluatePrimitive(ExprOp op, DType dtype, std::span<const ExprScalar> operands);

// A row of a region, of `columns` elements.
struct ExprRow {
  std::array<std::int64_t, 3> index = {};  // along the dimensions before the last
  std::int64_t columns = 1;
  // Element `column` of an input in this row.
  std::function<ExprScalar(const ExprNode& input, std::int64_t column)> input = {};
};

// The first requirement that an element of a row does not meet, by element, then in the order of ExprNodes.
struct ExprFault {
  const ExprNode* require;
  std::int64_t column;
  std::vector<ExprScalar> values;  // what the message shows
};

struct ExprRowValues {
  // Each root's values, one for each column. A row without columns has one value, for what is the same in all of a row.
  std::vector<std::vector<ExprScalar>> values;
  std::optional<ExprFault> fault = {};
};
ExprRowValues EvaluateRow(std::span<const Expr> roots, const ExprRow& row);

// The message of a fault, with its values. "{element}" stays, for who knows what element of an operator that is.
std::string FaultMessage(const ExprNode& require, std::span<const ExprScalar> values);
std::string WithElement(std::string message, std::int64_t element);

}  // namespace stepnet
