// Builders of expressions: dtypes are checked, and literals become constants.
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_simplify.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

enum class Operands { kNumbers, kFloats, kBools, kAny, kInt64 };

struct Rule {
  int min_operands;
  int max_operands;
  Operands operands;  // dtypes of those in the op's group
};

Rule RuleOf(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd:
    case ExprOp::kSubtract:
    case ExprOp::kMultiply:
    case ExprOp::kDivide:
    case ExprOp::kMod:
    case ExprOp::kMin:
    case ExprOp::kMax:
    case ExprOp::kLess:
    case ExprOp::kLessEqual: return {2, 2, Operands::kNumbers};
    case ExprOp::kPow: return {2, 2, Operands::kFloats};
    case ExprOp::kMulAdd: return {3, 3, Operands::kNumbers};
    case ExprOp::kNegate:
    case ExprOp::kAbs:
    case ExprOp::kSign:
    case ExprOp::kRowSum:
    case ExprOp::kRowMax: return {1, 1, Operands::kNumbers};
    case ExprOp::kEqual:
    case ExprOp::kNotEqual: return {2, 2, Operands::kAny};
    case ExprOp::kAnd:
    case ExprOp::kOr: return {2, 2, Operands::kBools};
    case ExprOp::kNot: return {1, 1, Operands::kBools};
    case ExprOp::kWhere: return {3, 3, Operands::kAny};
    case ExprOp::kCast: return {1, 1, Operands::kAny};
    case ExprOp::kRequire: return {1, kMaxExprOperands, Operands::kBools};
    case ExprOp::kUniform: return {5, 5, Operands::kInt64};
    case ExprOp::kIndex: return {0, 0, Operands::kAny};
    case ExprOp::kInput:
    case ExprOp::kConstant:
    case ExprOp::kLiteral: return {-1, -1, Operands::kAny};
    default: return {1, 1, Operands::kFloats};
  }
}

bool Allows(Operands operands, DType dtype) {
  switch (operands) {
    case Operands::kNumbers: return dtype != DType::kBool;
    case Operands::kFloats: return IsFloatOrDouble(dtype);
    case Operands::kBools: return dtype == DType::kBool;
    case Operands::kInt64: return dtype == DType::kInt64;
    case Operands::kAny: return true;
  }
  return true;
}

const char* NameOf(Operands operands) {
  switch (operands) {
    case Operands::kNumbers: return "numbers";
    case Operands::kFloats: return "float or double";
    case Operands::kBools: return "bool";
    case Operands::kInt64: return "int64";
    case Operands::kAny: return "any dtype";
  }
  return "";
}

bool IsLiteral(const Expr& expr) { return expr->op == ExprOp::kLiteral; }

// Whether what is cast to T from a number is that number; a float is, rounded. 2^63 becomes the greatest int64, which
// is 2^63 as a double.
template <typename T>
bool IsCastOf(T typed, double number) {
  if constexpr (scalar::kIsFloat<T>) return true;
  return number < std::ldexp(1.0, std::numeric_limits<T>::digits) && static_cast<double>(typed) == number;
}

// The literal as a number of dtype.
Expr Typed(const Expr& literal, DType dtype, const ExprDraft& where) {
  const ExprScalar value{.dtype = literal->is_whole ? DType::kInt64 : DType::kDouble, .bits = literal->bits};
  return ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T typed = literal->is_whole ? scalar::Cast<T>(value.As<std::int64_t>()) : scalar::Cast<T>(value.As<double>());
    const bool fits = literal->is_whole
                          ? scalar::kIsFloat<T> || static_cast<std::int64_t>(typed) == value.As<std::int64_t>()
                          : IsCastOf(typed, value.As<double>());
    if (!fits || dtype == DType::kBool) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(where.Text(), ": ", ExprSummary(literal), " is no ", dtype));
    }
    return ConstantOf(ScalarOf(typed));
  });
}

// Gives literals among operands that are to be alike the dtype of the others.
void TypeLiterals(ExprDraft* draft) {
  const auto [begin, end] = SameDType(draft->op, draft->count);
  const Expr* typed = nullptr;
  for (int i = begin; i < end && typed == nullptr; ++i) {
    if (!IsLiteral(draft->operands[i])) typed = &draft->operands[i];
  }
  for (int i = 0; i < draft->count; ++i) {
    Expr& operand = draft->operands[i];
    if (!IsLiteral(operand)) continue;
    if (draft->op == ExprOp::kCast) {
      operand = Typed(operand, draft->parts.dtype, *draft);
    } else if (draft->op == ExprOp::kUniform) {
      operand = Typed(operand, DType::kInt64, *draft);
    } else if (draft->op == ExprOp::kRequire && i >= 1) {
      operand = Typed(operand, operand->is_whole ? DType::kInt64 : DType::kDouble, *draft);
    } else if (typed != nullptr && i >= begin && i < end) {
      operand = Typed(operand, (*typed)->dtype, *draft);
    } else if (i >= begin && i < end) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(draft->Text(), ": nothing says of what dtype ", ExprSummary(operand), " is"));
    } else {
      throw Error(ErrorCode::kTypeMismatch, StrCat(draft->Text(), ": ", ExprSummary(operand), " is no bool"));
    }
  }
}

// Before literals get dtypes: none is of one that is only stored.
void CheckNoneIsStored(const ExprDraft& draft) {
  if (draft.op == ExprOp::kCast) return;
  for (const Expr& operand : draft.All()) {
    if (!IsStoredFloat(operand->dtype)) continue;
    throw Error(ErrorCode::kTypeMismatch, StrCat(draft.Text(), ": ", ExprSummary(operand), " is ", operand->dtype,
                                                 ", which is only stored; Cast to float computes with it"));
  }
}

void CheckDTypes(const ExprDraft& draft) {
  const Rule rule = RuleOf(draft.op);
  if (draft.op == ExprOp::kWhere && draft.a()->dtype != DType::kBool) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(draft.Text(), ": the condition is ", draft.a()->dtype, ", must be bool"));
  }
  const auto [begin, end] = SameDType(draft.op, draft.count);
  for (int i = begin; i < end; ++i) {
    const DType dtype = draft.operands[i]->dtype;
    if (!Allows(rule.operands, dtype)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(draft.Text(), ": ", ExprSummary(draft.operands[i]), " is ", dtype,
                                                   ", must be ", NameOf(rule.operands)));
    }
    const DType first = draft.operands[begin]->dtype;
    if (dtype != first) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(draft.Text(), ": ", ExprSummary(draft.operands[begin]), " is ", first, " and ",
                         ExprSummary(draft.operands[i]), " ", dtype, "; Cast makes them alike"));
    }
  }
}

DType ResultType(const ExprDraft& draft) {
  switch (draft.op) {
    case ExprOp::kIndex: return DType::kInt64;
    case ExprOp::kEqual:
    case ExprOp::kNotEqual:
    case ExprOp::kLess:
    case ExprOp::kLessEqual:
    case ExprOp::kAnd:
    case ExprOp::kOr:
    case ExprOp::kNot:
    case ExprOp::kRequire: return DType::kBool;
    case ExprOp::kCast:
    case ExprOp::kUniform: return draft.parts.dtype;
    case ExprOp::kWhere: return draft.b()->dtype;
    default: return draft.a()->dtype;
  }
}

// A literal that is only stored is rounded as the number that it is.
std::optional<Expr> StoredLiteral(const ExprDraft& x) {
  if (x.op != ExprOp::kCast || !IsStoredFloat(x.parts.dtype) || !IsLiteral(x.a())) return {};
  return Cast(x.parts.dtype, Typed(x.a(), x.a()->is_whole ? DType::kInt64 : DType::kDouble, x));
}

std::optional<Expr> ThroughFloat(const ExprDraft& x) {
  if (x.op != ExprOp::kCast || !CastNeedsFloat(x.parts.dtype, x.a()->dtype)) return {};
  return Cast(x.parts.dtype, Cast(DType::kFloat, x.a()));
}

// A literal alone has no dtype, and its negative neither.
std::optional<Expr> NegativeLiteral(const ExprDraft& x) {
  if (x.op != ExprOp::kNegate || !IsLiteral(x.a())) return {};
  const ExprScalar value{.dtype = DType::kInt64, .bits = x.a()->bits};
  if (!x.a()->is_whole) return Expr(-value.As<double>());
  if (value.As<std::int64_t>() == 0) return Expr(-0.0);
  return Expr(scalar::Negate(value.As<std::int64_t>()));
}

void CheckParts(const ExprDraft& draft, std::span<const Expr> operands) {
  const auto [min, max, unused] = RuleOf(draft.op);
  const int count = static_cast<int>(operands.size());
  if (min < 0) throw Error(ErrorCode::kInternal, "inputs and constants have builders of their own");
  std::vector<std::string> texts;
  for (const Expr& operand : operands) {
    if (!operand.defined()) {
      throw Error(ErrorCode::kInternal, StrCat(ExprOpName(draft.op), " has an undefined operand"));
    }
    if (count < min || count > max) texts.push_back(ExprSummary(operand));
  }
  if (count < min || count > max) {
    throw Error(ErrorCode::kInternal, StrCat(ExprOpName(draft.op), "(", Join(texts, ", "), ") has ", count,
                                             count == 1 ? " operand" : " operands", ", must have ", min,
                                             min == max ? "" : StrCat(" to ", max)));
  }
  const ExprParts& parts = draft.parts;
  if (draft.op == ExprOp::kCast) CheckOperandType(parts.dtype, "what is cast to");
  if (draft.op == ExprOp::kUniform && !IsFloatOrDouble(parts.dtype)) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("uniform gives float or double, not ", parts.dtype));
  }
  if (draft.op == ExprOp::kIndex && (parts.number < 0 || parts.number > 3)) {
    throw Error(ErrorCode::kInternal, StrCat("index of dimension ", parts.number, "; a region has 0 to 3"));
  }
}

}  // namespace

DTypeGroup SameDType(ExprOp op, int num_operands) {
  switch (op) {
    case ExprOp::kWhere: return {1, 3};
    case ExprOp::kRequire: return {0, 1};
    default: return {0, num_operands};
  }
}

Expr MakeExpr(ExprOp op, std::span<const Expr> operands, const ExprParts& parts) {
  constexpr std::int64_t kWork = 300;
  CountWork(kWork);  // a formula may make as many as an argument of the net says
  ExprDraft draft{.op = op, .parts = parts, .operands = {}, .count = static_cast<int>(operands.size())};
  CheckParts(draft, operands);
  std::ranges::copy(operands, draft.operands.begin());
  if (std::optional<Expr> literal = NegativeLiteral(draft)) return *std::move(literal);
  if (std::optional<Expr> literal = StoredLiteral(draft)) return *std::move(literal);
  if (std::optional<Expr> cast = ThroughFloat(draft)) return *std::move(cast);
  CheckNoneIsStored(draft);
  TypeLiterals(&draft);
  CheckDTypes(draft);
  const DType dtype = ResultType(draft);
  if (std::optional<Expr> simpler = Simplified(draft, dtype)) return *std::move(simpler);
  ExprFields fields{.op = op,
                    .dtype = dtype,
                    .num_operands = static_cast<std::uint8_t>(draft.count),
                    .number = op == ExprOp::kIndex ? parts.number : 0};
  for (int i = 0; i < draft.count; ++i) fields.operands[i] = draft.operands[i].node();
  if (op == ExprOp::kRequire) fields.text = parts.text;
  return SharedNode(std::move(fields));
}

Expr Expr::Constant(DType dtype, double value) {
  CheckOperandType(dtype, "a constant");
  if (IsStoredFloat(dtype)) return Cast(dtype, Constant(DType::kDouble, value));
  return ForExprType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T typed = scalar::Cast<T>(value);
    if (!IsCastOf(typed, value)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat("the constant ", value, " is no ", dtype));
    }
    return ConstantOf(ScalarOf(typed));
  });
}

namespace {

Expr Make(ExprOp op, std::initializer_list<Expr> operands, const ExprParts& parts = {}) {
  return MakeExpr(op, std::span<const Expr>(operands.begin(), operands.size()), parts);
}

}  // namespace

Expr operator+(const Expr& a, const Expr& b) { return Make(ExprOp::kAdd, {a, b}); }
Expr operator-(const Expr& a, const Expr& b) { return Make(ExprOp::kSubtract, {a, b}); }
Expr operator*(const Expr& a, const Expr& b) { return Make(ExprOp::kMultiply, {a, b}); }
Expr operator/(const Expr& a, const Expr& b) { return Make(ExprOp::kDivide, {a, b}); }
Expr operator-(const Expr& a) { return Make(ExprOp::kNegate, {a}); }
Expr operator<(const Expr& a, const Expr& b) { return Make(ExprOp::kLess, {a, b}); }
Expr operator<=(const Expr& a, const Expr& b) { return Make(ExprOp::kLessEqual, {a, b}); }
Expr operator>(const Expr& a, const Expr& b) { return Make(ExprOp::kLess, {b, a}); }
Expr operator>=(const Expr& a, const Expr& b) { return Make(ExprOp::kLessEqual, {b, a}); }
Expr Equal(const Expr& a, const Expr& b) { return Make(ExprOp::kEqual, {a, b}); }
Expr NotEqual(const Expr& a, const Expr& b) { return Make(ExprOp::kNotEqual, {a, b}); }
Expr Mod(const Expr& a, const Expr& b) { return Make(ExprOp::kMod, {a, b}); }
Expr Min(const Expr& a, const Expr& b) { return Make(ExprOp::kMin, {a, b}); }
Expr Max(const Expr& a, const Expr& b) { return Make(ExprOp::kMax, {a, b}); }
Expr Pow(const Expr& a, const Expr& b) { return Make(ExprOp::kPow, {a, b}); }
Expr MulAdd(const Expr& a, const Expr& b, const Expr& c) { return Make(ExprOp::kMulAdd, {a, b, c}); }
Expr Abs(const Expr& a) { return Make(ExprOp::kAbs, {a}); }
Expr Sign(const Expr& a) { return Make(ExprOp::kSign, {a}); }
Expr Sqrt(const Expr& a) { return Make(ExprOp::kSqrt, {a}); }
Expr Exp(const Expr& a) { return Make(ExprOp::kExp, {a}); }
Expr Log(const Expr& a) { return Make(ExprOp::kLog, {a}); }
Expr Tanh(const Expr& a) { return Make(ExprOp::kTanh, {a}); }
Expr Sigmoid(const Expr& a) { return Make(ExprOp::kSigmoid, {a}); }
Expr And(const Expr& a, const Expr& b) { return Make(ExprOp::kAnd, {a, b}); }
Expr Or(const Expr& a, const Expr& b) { return Make(ExprOp::kOr, {a, b}); }
Expr Not(const Expr& a) { return Make(ExprOp::kNot, {a}); }
Expr Where(const Expr& condition, const Expr& then, const Expr& otherwise) {
  return Make(ExprOp::kWhere, {condition, then, otherwise});
}
Expr Cast(DType dtype, const Expr& a) { return Make(ExprOp::kCast, {a}, {.dtype = dtype}); }
Expr Index(int dimension) { return Make(ExprOp::kIndex, {}, {.number = dimension}); }
Expr Uniform(DType dtype, const Expr& seed, const Expr& op, const Expr& run, const Expr& step, const Expr& element) {
  return Make(ExprOp::kUniform, {seed, op, run, step, element}, {.dtype = dtype});
}
Expr RowSum(const Expr& a) { return Make(ExprOp::kRowSum, {a}); }
Expr RowMax(const Expr& a) { return Make(ExprOp::kRowMax, {a}); }

}  // namespace stepnet
