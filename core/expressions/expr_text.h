// Expressions as text, which people and tests read and write.
//
//   in 0 x: float                    # input 0, its name and dtype
//   in 1 "c/prev": float             # another name, or a long one; the text calls it $1: the line of the input, from 0
//   in 2 ended: bool
//   a = tanh(x)                      # what is used more than once
//   out where(ended, 0, a * a + $1)  # a root
//
// Operators are those of C, with its precedence: || && == != < <= > >= + - * / % - !. Functions are named as
// primitives: mul_add(a, b, c), min, max, pow, where(condition, a, b), row_sum(a), index(3),
// require(condition, "message {}", value), uniform(float, seed, op, run, step, element), float(a) to cast, from float16
// and bfloat16 and to them as well. Numbers have the dtype of what they meet; float(1) is the number 1 of that dtype.
// nan, inf, true and false are numbers: no line defines them, and an input of such a name is in quotes. An input number
// has one name and dtype.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_scalar.h"

namespace stepnet {

// Text that ParseExprs makes the same expressions from. REQUIRES: no literal among them, which has no dtype.
std::string PrintExprs(std::span<const Expr> roots);
std::string PrintExpr(const Expr& root);

// The roots in the order of the text. Throws kSyntaxError, and what MakeExpr throws, as "LINE:COLUMN: what".
std::vector<Expr> ParseExprs(std::string_view text);

// The function that stands for `op` in texts, or its sign: "tanh", "+".
const char* ExprOpName(ExprOp op);
// The number, as texts have it where its dtype is known: 0.1, -0.0, nan, true.
std::string ScalarText(const ExprScalar& value);

// One line for messages: what lies deeper than some levels is "…".
std::string ExprSummary(const Expr& expr);
std::string ExprSummary(ExprOp op, std::span<const Expr> operands, const ExprParts& parts);

// How an op is written.
struct ExprSyntax {
  ExprOp op;
  const char* name;
  int precedence;  // of signs between operands; 0 for functions
};
inline constexpr int kUnaryPrecedence = 6;
inline constexpr int kPrimaryPrecedence = 7;
const ExprSyntax& SyntaxOf(ExprOp op);
std::span<const ExprSyntax> ExprSyntaxes();

}  // namespace stepnet
