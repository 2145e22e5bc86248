// Builders of expressions: dtypes are checked, literals become constants, and what is known already is computed.
//
// An identity is applied only where both sides are equal for every value: the sign of 0, infinities and NaN included
// (but for the sign and payload of a NaN, which mean nothing). None drops an operand that holds a requirement.
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/expressions/expr_text.h"
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
  const bool is_float = dtype == DType::kFloat || dtype == DType::kDouble;
  switch (operands) {
    case Operands::kNumbers: return dtype != DType::kBool;
    case Operands::kFloats: return is_float;
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

// An expression that is being built.
struct Building {
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

bool IsLiteral(const Expr& expr) { return expr->op == ExprOp::kLiteral; }

// Whether what is cast to T from a number is that number; a float is, rounded. 2^63 becomes the greatest int64, which
// is 2^63 as a double.
template <typename T>
bool IsCastOf(T typed, double number) {
  if constexpr (scalar::kIsFloat<T>) return true;
  return number < std::ldexp(1.0, std::numeric_limits<T>::digits) && static_cast<double>(typed) == number;
}

// The literal as a number of dtype.
Expr Typed(const Expr& literal, DType dtype, const Building& where) {
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
void TypeLiterals(Building* building) {
  const auto [begin, end] = SameDType(building->op, building->count);
  const Expr* typed = nullptr;
  for (int i = begin; i < end && typed == nullptr; ++i) {
    if (!IsLiteral(building->operands[i])) typed = &building->operands[i];
  }
  for (int i = 0; i < building->count; ++i) {
    Expr& operand = building->operands[i];
    if (!IsLiteral(operand)) continue;
    if (building->op == ExprOp::kCast) {
      operand = Typed(operand, building->parts.dtype, *building);
    } else if (building->op == ExprOp::kUniform) {
      operand = Typed(operand, DType::kInt64, *building);
    } else if (building->op == ExprOp::kRequire && i >= 1) {
      operand = Typed(operand, operand->is_whole ? DType::kInt64 : DType::kDouble, *building);
    } else if (typed != nullptr && i >= begin && i < end) {
      operand = Typed(operand, (*typed)->dtype, *building);
    } else if (i >= begin && i < end) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(building->Text(), ": nothing says of what dtype ", ExprSummary(operand), " is"));
    } else {
      throw Error(ErrorCode::kTypeMismatch, StrCat(building->Text(), ": ", ExprSummary(operand), " is no bool"));
    }
  }
}

// Before literals get dtypes: none is of one that is only stored.
void CheckNoneIsStored(const Building& building) {
  if (building.op == ExprOp::kCast) return;
  for (const Expr& operand : building.All()) {
    if (!IsStoredFloat(operand->dtype)) continue;
    throw Error(ErrorCode::kTypeMismatch, StrCat(building.Text(), ": ", ExprSummary(operand), " is ", operand->dtype,
                                                 ", which is only stored; Cast to float computes with it"));
  }
}

void CheckDTypes(const Building& building) {
  const Rule rule = RuleOf(building.op);
  if (building.op == ExprOp::kWhere && building.a()->dtype != DType::kBool) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(building.Text(), ": the condition is ", building.a()->dtype, ", must be bool"));
  }
  const auto [begin, end] = SameDType(building.op, building.count);
  for (int i = begin; i < end; ++i) {
    const DType dtype = building.operands[i]->dtype;
    if (!Allows(rule.operands, dtype)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(building.Text(), ": ", ExprSummary(building.operands[i]), " is ",
                                                   dtype, ", must be ", NameOf(rule.operands)));
    }
    const DType first = building.operands[begin]->dtype;
    if (dtype != first) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(building.Text(), ": ", ExprSummary(building.operands[begin]), " is ", first, " and ",
                         ExprSummary(building.operands[i]), " ", dtype, "; Cast makes them alike"));
    }
  }
}

DType ResultType(const Building& building) {
  switch (building.op) {
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
    case ExprOp::kUniform: return building.parts.dtype;
    case ExprOp::kWhere: return building.b()->dtype;
    default: return building.a()->dtype;
  }
}

bool IsFloating(const Expr& expr) { return expr->dtype == DType::kFloat || expr->dtype == DType::kDouble; }

// What the op gives for constants; nothing where that is not known yet.
std::optional<Expr> Folded(const Building& building) {
  switch (building.op) {
    case ExprOp::kIndex:
    case ExprOp::kRequire:
    case ExprOp::kRowSum:
    case ExprOp::kRowMax: return {};
    default: break;
  }
  std::array<ExprScalar, kMaxExprOperands> values;
  for (int i = 0; i < building.count; ++i) {
    const Expr& operand = building.operands[i];
    if (!operand.IsConstant()) return {};
    values[i] = {.dtype = operand->dtype, .bits = operand->bits};
  }
  const bool divides = building.op == ExprOp::kDivide || building.op == ExprOp::kMod;
  if (divides && values[1].bits == 0 && !IsFloating(building.b())) return {};  // that it divides by 0 has to be seen
  return ConstantOf(
      EvaluatePrimitive(building.op, ResultType(building), {values.data(), static_cast<size_t>(building.count)}));
}

// Whether expr is the constant `value`, with the sign of a 0.
bool IsNumber(const Expr& expr, double value) {
  if (!expr.IsConstant()) return false;
  const ExprScalar constant{.dtype = expr->dtype, .bits = expr->bits};
  return ForExprType(expr->dtype, [&](auto zero) {
    const auto x = constant.As<decltype(zero)>();
    const double is = static_cast<double>(x);
    return is == value && std::signbit(is) == std::signbit(value) && static_cast<decltype(zero)>(is) == x;
  });
}

Expr OperandOf(const Expr& expr, int i) { return Expr::Of(expr->operands[i]); }

std::optional<Expr> SimplerSum(const Building& x) {
  const Expr &a = x.a(), &b = x.b();
  const bool is_add = x.op == ExprOp::kAdd;
  // -0 is what changes nothing: -0 + 0 is 0. A difference changes nothing for 0.
  const double neutral = IsFloating(a) && is_add ? -0.0 : 0.0;
  if (IsNumber(b, neutral)) return a;
  if (is_add && IsNumber(a, neutral)) return b;
  if (!is_add && !IsFloating(a) && a.Is(b) && !a->has_require()) return Expr::Constant(a->dtype, 0);
  if (b->op == ExprOp::kNegate) return is_add ? a - OperandOf(b, 0) : a + OperandOf(b, 0);
  return {};
}

std::optional<Expr> SimplerProduct(const Building& x) {
  const Expr &a = x.a(), &b = x.b();
  if (IsNumber(b, 1)) return a;
  if (IsNumber(b, -1)) return -a;
  if (x.op == ExprOp::kDivide) return {};
  if (IsNumber(a, 1)) return b;
  if (IsNumber(a, -1)) return -b;
  if (IsFloating(a)) return {};
  if (IsNumber(a, 0) && !b->has_require()) return a;
  if (IsNumber(b, 0) && !a->has_require()) return b;
  return {};
}

// fma(1, b, c) rounds b + c once, as + does; a * b + -0 is a * b.
std::optional<Expr> SimplerMulAdd(const Building& x) {
  if (IsNumber(x.a(), 1)) return x.b() + x.c();
  if (IsNumber(x.b(), 1)) return x.a() + x.c();
  if (IsNumber(x.c(), IsFloating(x.c()) ? -0.0 : 0.0)) return x.a() * x.b();
  return {};
}

std::optional<Expr> SimplerLogic(const Building& x) {
  const Expr &a = x.a(), &b = x.b();
  const bool decides = x.op == ExprOp::kOr;  // whatever the other one is
  if (a.Is(b)) return a;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->IsConstant()) continue;
    if ((*one)->bits != static_cast<std::uint64_t>(decides)) return *other;
    if (!(*other)->has_require()) return *one;
  }
  return {};
}

std::optional<Expr> SimplerNot(const Expr& a) {
  if (a->op == ExprOp::kNot) return OperandOf(a, 0);
  if (a->op == ExprOp::kEqual) return NotEqual(OperandOf(a, 0), OperandOf(a, 1));
  if (a->op == ExprOp::kNotEqual) return Equal(OperandOf(a, 0), OperandOf(a, 1));
  return {};
}

std::optional<Expr> SimplerWhere(const Building& x) {
  const Expr &condition = x.a(), &then = x.b(), &otherwise = x.c();
  if (then.Is(otherwise) && !condition->has_require()) return then;
  if (condition.IsConstant()) {
    const auto& [taken, left] = condition->bits != 0 ? std::pair(then, otherwise) : std::pair(otherwise, then);
    if (!left->has_require()) return taken;
  }
  if (condition->op == ExprOp::kNot) return Where(OperandOf(condition, 0), otherwise, then);
  return {};
}

// Whether every value of `from` has a value of `to` of its own.
bool Holds(DType to, DType from) {
  if (to == from || from == DType::kBool) return true;
  switch (to) {
    case DType::kFloat: return IsStoredFloat(from);
    case DType::kDouble: return from == DType::kFloat || from == DType::kInt32;
    case DType::kInt64: return from == DType::kInt32;
    default: return false;
  }
}

// Whether a cast goes through float: between what is only stored and bool, each other, and what reads it.
bool NeedsFloat(DType to, DType from) {
  if (to == from) return false;
  return (IsStoredFloat(to) && from == DType::kBool) || (IsStoredFloat(from) && to != DType::kFloat);
}

std::optional<Expr> SimplerCast(const Building& x) {
  const DType to = x.parts.dtype;
  if (x.a()->dtype == to) return x.a();
  if (x.a()->op != ExprOp::kCast) return {};
  const Expr source = OperandOf(x.a(), 0);
  if (!Holds(x.a()->dtype, source->dtype)) return {};
  if (source->dtype == to) return source;
  if (IsStoredFloat(to) && !NeedsFloat(to, source->dtype)) return Cast(to, source);
  return {};
}

std::optional<Expr> Simpler(const Building& x) {
  const Expr& a = x.a();
  switch (x.op) {
    case ExprOp::kAdd:
    case ExprOp::kSubtract: return SimplerSum(x);
    case ExprOp::kMultiply:
    case ExprOp::kDivide: return SimplerProduct(x);
    case ExprOp::kMulAdd: return SimplerMulAdd(x);
    case ExprOp::kMin:
    case ExprOp::kMax:
      if (a.Is(x.b())) return a;
      return {};
    case ExprOp::kPow:
      if (IsNumber(x.b(), 1)) return a;
      if (IsNumber(x.b(), 0) && !a->has_require()) return Expr::Constant(a->dtype, 1);  // of NaN as well
      return {};
    case ExprOp::kNegate:
      if (a->op == ExprOp::kNegate) return OperandOf(a, 0);
      return {};
    case ExprOp::kAbs:
      if (a->op == ExprOp::kAbs) return a;
      if (a->op == ExprOp::kNegate) return Abs(OperandOf(a, 0));
      return {};
    case ExprOp::kEqual:
      if (a.Is(x.b()) && !IsFloating(a) && !a->has_require()) return Expr(true);
      return {};
    case ExprOp::kNotEqual:
      if (a.Is(x.b()) && !IsFloating(a) && !a->has_require()) return Expr(false);
      return {};
    case ExprOp::kAnd:
    case ExprOp::kOr: return SimplerLogic(x);
    case ExprOp::kNot: return SimplerNot(a);
    case ExprOp::kWhere: return SimplerWhere(x);
    case ExprOp::kCast: return SimplerCast(x);
    default: return {};
  }
}

// A literal that is only stored is rounded as the number that it is.
std::optional<Expr> StoredLiteral(const Building& x) {
  if (x.op != ExprOp::kCast || !IsStoredFloat(x.parts.dtype) || !IsLiteral(x.a())) return {};
  return Cast(x.parts.dtype, Typed(x.a(), x.a()->is_whole ? DType::kInt64 : DType::kDouble, x));
}

std::optional<Expr> ThroughFloat(const Building& x) {
  if (x.op != ExprOp::kCast || !NeedsFloat(x.parts.dtype, x.a()->dtype)) return {};
  return Cast(x.parts.dtype, Cast(DType::kFloat, x.a()));
}

// A literal alone has no dtype, and its negative neither.
std::optional<Expr> NegativeLiteral(const Building& x) {
  if (x.op != ExprOp::kNegate || !IsLiteral(x.a())) return {};
  const ExprScalar value{.dtype = DType::kInt64, .bits = x.a()->bits};
  if (!x.a()->is_whole) return Expr(-value.As<double>());
  if (value.As<std::int64_t>() == 0) return Expr(-0.0);
  return Expr(scalar::Negate(value.As<std::int64_t>()));
}

void CheckParts(const Building& building, std::span<const Expr> operands) {
  const auto [min, max, unused] = RuleOf(building.op);
  const int count = static_cast<int>(operands.size());
  if (min < 0) throw Error(ErrorCode::kInternal, "inputs and constants have builders of their own");
  std::vector<std::string> texts;
  for (const Expr& operand : operands) {
    if (!operand.defined()) {
      throw Error(ErrorCode::kInternal, StrCat(ExprOpName(building.op), " has an undefined operand"));
    }
    if (count < min || count > max) texts.push_back(ExprSummary(operand));
  }
  if (count < min || count > max) {
    throw Error(ErrorCode::kInternal, StrCat(ExprOpName(building.op), "(", Join(texts, ", "), ") has ", count,
                                             count == 1 ? " operand" : " operands", ", must have ", min,
                                             min == max ? "" : StrCat(" to ", max)));
  }
  const ExprParts& parts = building.parts;
  if (building.op == ExprOp::kCast) CheckOperandType(parts.dtype, "what is cast to");
  if (building.op == ExprOp::kUniform && parts.dtype != DType::kFloat && parts.dtype != DType::kDouble) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("uniform gives float or double, not ", parts.dtype));
  }
  if (building.op == ExprOp::kIndex && (parts.number < 0 || parts.number > 3)) {
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
  Building building{.op = op, .parts = parts, .operands = {}, .count = static_cast<int>(operands.size())};
  CheckParts(building, operands);
  std::ranges::copy(operands, building.operands.begin());
  if (std::optional<Expr> literal = NegativeLiteral(building)) return *std::move(literal);
  if (std::optional<Expr> literal = StoredLiteral(building)) return *std::move(literal);
  if (std::optional<Expr> cast = ThroughFloat(building)) return *std::move(cast);
  CheckNoneIsStored(building);
  TypeLiterals(&building);
  CheckDTypes(building);
  if (std::optional<Expr> constant = Folded(building)) return *std::move(constant);
  if (std::optional<Expr> simpler = Simpler(building)) return *std::move(simpler);
  ExprFields fields{.op = op,
                    .dtype = ResultType(building),
                    .num_operands = static_cast<std::uint8_t>(building.count),
                    .number = op == ExprOp::kIndex ? parts.number : 0};
  for (int i = 0; i < building.count; ++i) fields.operands[i] = building.operands[i].node();
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
