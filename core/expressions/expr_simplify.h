// What an expression that is about to be built comes to by what is known already.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_text.h"

namespace stepnet {

// What is about to become an expression.
struct ExprDraft {
  ExprOp op;
  ExprParts parts;
  std::array<Expr, kMaxExprOperands> operands;
  int count;

  const Expr& a() const { return operands[0]; }
  const Expr& b() const { return operands[1]; }
  const Expr& c() const { return operands[2]; }
  std::span<const Expr> All() const { return {operands.data(), static_cast<size_t>(count)}; }
  std::string Text() const { return ExprSummary(op, All(), parts); }
};

// What the draft, whose operands have the dtypes that they must have, comes to without an operation of its own: a
// constant where all operands are, or what an identity says; nothing where it stays. `result` is its dtype.
//
// An identity is applied only where both sides are equal for every value: the sign of 0, infinities and NaN included
// (but for the sign and payload of a NaN, which mean nothing). None drops an operand that holds a requirement.
std::optional<Expr> Simplified(const ExprDraft& draft, DType result);

// Whether a cast goes through float: between what is only stored and bool, each other, and what reads it.
bool CastNeedsFloat(DType to, DType from);

}  // namespace stepnet
