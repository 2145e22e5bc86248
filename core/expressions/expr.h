// Expressions: what a formula computes, one element at a time, as values that passes, interpreters and generators of
// code read alike.
//
// An expression is an immutable graph of primitives, each with one exact meaning for each dtype (ExprOp). Equal
// expressions are the same node, so that comparing two is comparing pointers and what is computed twice is found for
// free. Builders check dtypes, compute what is constant and apply identities that hold for every value, with NaN,
// infinities and -0; nothing else: x + 0 stays, because -0 + 0 is 0.
//
//   const Expr x = Expr::Input(0, "x", DType::kFloat);
//   const Expr y = Where(x > 0, x, 0.01 * x);
// Number literals take the dtype of what they meet. Expressions are of float, double, int32, int64 and bool; of float16
// and bfloat16, which are storage, inputs and outputs may be, and Cast alone knows them (core/stored_float.h).
// Thread safety: expressions may be built, copied and read from many threads.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet {

// What a node computes, of operands a, b, c. Where nothing else is said, operands and result have one dtype, and
// - floating-point operations round once, to nearest even, and keep denormals; NaN gives NaN, whose sign and payload
//   mean nothing;
// - integers wrap around.
// `float` stands for float and double, `number` for these, int32 and int64.
enum class ExprOp : std::uint8_t {
  kInput,     // a number that the region reads: Expr::Input
  kConstant,  // a number: Expr::Constant
  kLiteral,   // a number whose dtype is not known yet
  kIndex,     // the index along a dimension of the region, int64
  // number × number → number
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,  // integers round towards 0; the lowest by -1 is itself. By 0 they give 0, which formulas make a fault
  kMod,     // a - trunc(a / b) * b exactly, with the sign of a (C's % and fmod); integers by -1 and 0 give 0, likewise
  kMin,     // a where a is NaN; else a < b ? a : b. So NaN where one is NaN, and b of two equal ones (0 and -0)
  kMax,     // a where a is NaN; else a > b ? a : b
  // float × float → float
  kPow,  // as std::pow
  // float × float × float → float; for integers as well, where it is a * b + c
  kMulAdd,  // a * b + c, rounded once
  // number → number
  kNegate,
  kAbs,   // of the lowest integer: itself
  kSign,  // 1, -1 or 0; sign(-0) is 0, sign(NaN) is NaN
  // float → float. Those of vector_math.h are as exact as that header says, others (core/expressions/expr_functions.h)
  // as the C library's
  kSqrt,
  kExp,      // VectorExp
  kExpm1,    // e^a - 1, exact near 0
  kLog,      // VectorLog
  kLog1p,    // log(1 + a), exact near 0
  kTanh,     // VectorTanh
  kSigmoid,  // VectorSigmoid: 1 / (1 + e^-a)
  kErf,
  kErfc,  // VectorErfc: 1 - erf(a), exact where that is small; of infinity 0, of -infinity 2
  kSin,   // VectorSin
  kCos,   // VectorCos
  kFloor,
  kCeil,
  kRound,  // to the nearest whole number, of two the even one
  // any dtype × the same → bool, by value: 0 equals -0, NaN nothing
  kEqual,
  kNotEqual,
  // number × number → bool; a > b is kLess of b and a
  kLess,
  kLessEqual,
  // bool
  kAnd,
  kOr,
  kNot,
  kWhere,  // bool × any × the same → that: b where a holds, c elsewhere
  // Any dtype → another. Floats to integers: towards 0, what is out of range becomes the nearest in it, NaN 0. int64 to
  // int32: the low bits. To bool: whether it is not 0. Others round to nearest even, to 16 bits as to any other.
  kCast,
  // bool [× any up to 4 times] → bool: a. A fault of the run where a does not hold, also where nothing uses the value;
  // the others are the numbers that the message shows.
  kRequire,
  // int64 × 5 (seed, op, run, step, element) → float, double: the number of RandomStream(seed, op, run, step) at
  // `element`, in [0, 1): as float its upper 24 bits, as double all 32.
  kUniform,
  // Over the last dimension of the region; number → number, the same for the whole row.
  kRowSum,  // 64 partial sums from 0, element j added to sum j % 64; then p[i] += p[i + 32], 16, 8, 4, 2, 1
  kRowMax,  // likewise with kMax, from -infinity or the lowest integer: of no element it is that
};
inline constexpr int kNumExprOps = static_cast<int>(ExprOp::kRowMax) + 1;
inline constexpr int kMaxExprOperands = 5;
inline constexpr int kMaxExprValues = kMaxExprOperands - 1;  // that a Require shows
// A reduction over a row has as many as keep the widest vectors from waiting for each other.
inline constexpr int kExprPartials = 64;

class ExprNode;

// What a node says; what its op has no use for is empty.
struct ExprFields {
  ExprOp op = ExprOp::kConstant;
  DType dtype = DType::kFloat;
  bool is_whole = false;  // kLiteral: `bits` are an int64, else a double
  std::uint8_t num_operands = 0;
  int number = 0;          // kInput: which one; kIndex: the dimension
  std::uint64_t bits = 0;  // kConstant: the value, as ExprScalar has it; kLiteral
  const ExprNode* operands[kMaxExprOperands] = {};
  std::string text = {};  // kInput: the name; kRequire: the message

  std::span<const ExprNode* const> Operands() const { return {operands, num_operands}; }
};

class ExprNode : public ExprFields {
 public:
  // Here or in what it is computed from.
  bool has_row_reduction() const { return has_row_reduction_; }
  bool has_require() const { return has_require_; }

 private:
  friend class ExprTable;
  ExprNode(ExprFields fields, std::uint64_t hash);

  bool has_row_reduction_ = false;
  bool has_require_ = false;
  std::uint64_t hash_;
  ExprNode* next_ = nullptr;                    // among those that are about to go
  mutable std::atomic<std::int64_t> uses_ = 0;  // handles and nodes above
};

class Expr {
 public:
  Expr() = default;  // nothing; defined() is false
  // A literal. A bool is a constant of that dtype.
  template <typename T>
  requires std::integral<T> || std::floating_point<T> Expr(T value) {  // NOLINT: numbers are expressions
    if constexpr (std::same_as<T, bool>) {
      *this = Constant(DType::kBool, static_cast<double>(value));
    } else if constexpr (std::integral<T>) {
      *this = WholeLiteral(static_cast<std::int64_t>(value));
    } else {
      *this = Literal(static_cast<double>(value));
    }
  }

  // Input `number` of the region; `name` is for people. One number has one name and dtype in an expression.
  // Throw kTypeMismatch for a dtype that expressions do not have, kInvalidArgument for a negative number.
  static Expr Input(int number, std::string_view name, DType dtype);
  // `value` rounded to dtype. Throws kTypeMismatch where an integer or bool cannot hold it.
  static Expr Constant(DType dtype, double value);

  Expr(const Expr& other);
  Expr(Expr&& other) noexcept : node_(other.node_) { other.node_ = nullptr; }
  Expr& operator=(Expr other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Expr();

  bool defined() const { return node_ != nullptr; }
  // REQUIRES: defined().
  const ExprNode& operator*() const { return *node_; }
  const ExprNode* operator->() const { return node_; }
  const ExprNode* node() const { return node_; }
  DType dtype() const { return node_->dtype; }
  // A handle of a node that another handle keeps.
  static Expr Of(const ExprNode* node);

  // Whether both are the same expression; `==` would read as an expression of its own.
  bool Is(const Expr& other) const { return node_ == other.node_; }
  bool IsConstant() const { return defined() && node_->op == ExprOp::kConstant; }

 private:
  friend class ExprTable;
  static Expr WholeLiteral(std::int64_t value);
  static Expr Literal(double value);

  const ExprNode* node_ = nullptr;
};

// Any primitive but kInput, kConstant and kLiteral, with what belongs to it; what parsers and passes call.
struct ExprParts {
  DType dtype = DType::kFloat;  // of kCast and kUniform
  int number = 0;               // of kIndex
  std::string_view text = {};   // of kRequire
};
// Builders throw kTypeMismatch, naming the expression, for operands whose dtypes do not fit, and kInternal for a wrong
// number of operands, an undefined one or a dimension outside [0, 4); and kCancelled (core/cancellation.h).
Expr MakeExpr(ExprOp op, std::span<const Expr> operands, const ExprParts& parts = {});

Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);
Expr operator-(const Expr& a);
Expr operator<(const Expr& a, const Expr& b);
Expr operator<=(const Expr& a, const Expr& b);
Expr operator>(const Expr& a, const Expr& b);
Expr operator>=(const Expr& a, const Expr& b);
Expr Equal(const Expr& a, const Expr& b);
Expr NotEqual(const Expr& a, const Expr& b);
Expr Mod(const Expr& a, const Expr& b);
Expr Min(const Expr& a, const Expr& b);
Expr Max(const Expr& a, const Expr& b);
Expr Pow(const Expr& a, const Expr& b);
Expr MulAdd(const Expr& a, const Expr& b, const Expr& c);
Expr Abs(const Expr& a);
Expr Sign(const Expr& a);
Expr Sqrt(const Expr& a);
Expr Exp(const Expr& a);
inline Expr Expm1(const Expr& a) { return MakeExpr(ExprOp::kExpm1, {&a, 1}); }
Expr Log(const Expr& a);
inline Expr Log1p(const Expr& a) { return MakeExpr(ExprOp::kLog1p, {&a, 1}); }
Expr Tanh(const Expr& a);
Expr Sigmoid(const Expr& a);
inline Expr Erf(const Expr& a) { return MakeExpr(ExprOp::kErf, {&a, 1}); }
inline Expr Erfc(const Expr& a) { return MakeExpr(ExprOp::kErfc, {&a, 1}); }
inline Expr Sin(const Expr& a) { return MakeExpr(ExprOp::kSin, {&a, 1}); }
inline Expr Cos(const Expr& a) { return MakeExpr(ExprOp::kCos, {&a, 1}); }
inline Expr Floor(const Expr& a) { return MakeExpr(ExprOp::kFloor, {&a, 1}); }
inline Expr Ceil(const Expr& a) { return MakeExpr(ExprOp::kCeil, {&a, 1}); }
inline Expr Round(const Expr& a) { return MakeExpr(ExprOp::kRound, {&a, 1}); }
Expr And(const Expr& a, const Expr& b);
Expr Or(const Expr& a, const Expr& b);
Expr Not(const Expr& a);
Expr Where(const Expr& condition, const Expr& then, const Expr& otherwise);
Expr Cast(DType dtype, const Expr& a);
Expr Index(int dimension);
// `message` shows the values, one after the other, in place of each "{}".
template <std::convertible_to<Expr>... Values>
requires(sizeof...(Values) <= kMaxExprValues) Expr
    Require(const Expr& condition, std::string_view message, const Values&... values) {
  const Expr operands[] = {condition, Expr(values)...};
  return MakeExpr(ExprOp::kRequire, operands, {.text = message});
}
Expr Uniform(DType dtype, const Expr& seed, const Expr& op, const Expr& run, const Expr& step, const Expr& element);
Expr RowSum(const Expr& a);
Expr RowMax(const Expr& a);

// All nodes below the roots, each once, operands before what uses them; roots in their order.
std::vector<const ExprNode*> ExprNodes(std::span<const Expr> roots);

// Expressions alive in this process: for tests.
std::int64_t NumExprNodes();

}  // namespace stepnet
