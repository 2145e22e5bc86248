#include "stepnet/core/expressions/expr_evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "random_exprs.h"
#include "stepnet/core/expressions/expr_functions.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/random.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/tests/core/for_each_target.h"

namespace stepnet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

double AsDouble(const ExprScalar& value) {
  return ForExprType(value.dtype, [&](auto zero) { return static_cast<double>(value.As<decltype(zero)>()); });
}

template <typename T>
ExprScalar Primitive(ExprOp op, std::initializer_list<T> operands) {
  std::vector<ExprScalar> scalars;
  for (const T operand : operands) scalars.push_back(ScalarOf(operand));
  return EvaluatePrimitive(op, kDTypeOf<T>, scalars);
}

// By its definition, in double, which holds every float and most results of float operations exactly enough to round.
double Definition(ExprOp op, double a, double b, double c) {
  switch (op) {
    case ExprOp::kAdd: return a + b;
    case ExprOp::kSubtract: return a - b;
    case ExprOp::kMultiply: return a * b;
    case ExprOp::kDivide: return a / b;
    case ExprOp::kMod: return std::fmod(a, b);
    case ExprOp::kMin: return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? a : b;
    case ExprOp::kMax: return std::isnan(a) ? a : std::isnan(b) ? b : a > b ? a : b;
    case ExprOp::kPow: return std::pow(a, b);
    case ExprOp::kMulAdd: return std::fma(a, b, c);
    case ExprOp::kNegate: return -a;
    case ExprOp::kAbs: return std::fabs(a);
    case ExprOp::kSign: return std::isnan(a) ? a : (a > 0) - (a < 0);
    case ExprOp::kSqrt: return std::sqrt(a);
    case ExprOp::kExp: return std::exp(a);
    case ExprOp::kExpm1: return std::expm1(a);
    case ExprOp::kLog: return std::log(a);
    case ExprOp::kLog1p: return std::log1p(a);
    case ExprOp::kTanh: return std::tanh(a);
    case ExprOp::kSigmoid: return a < 0 ? std::exp(a) / (1 + std::exp(a)) : 1 / (1 + std::exp(-a));
    case ExprOp::kErf: return std::erf(a);
    case ExprOp::kErfc: return std::erfc(a);
    case ExprOp::kSin: return std::sin(a);
    case ExprOp::kCos: return std::cos(a);
    case ExprOp::kFloor: return std::floor(a);
    case ExprOp::kCeil: return std::ceil(a);
    case ExprOp::kRound: return std::rint(a);
    default: return kNaN;
  }
}

int OperandsOf(ExprOp op) {
  if (op == ExprOp::kMulAdd) return 3;
  return op <= ExprOp::kPow ? 2 : 1;
}

// In units of the last place of a T; a small number against the smallest.
template <typename T>
double Distance(T got, double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(want);
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e30;
  if (std::isinf(got) || std::isinf(rounded)) return 1e30;
  const T next = std::nextafter(std::fabs(rounded), std::numeric_limits<T>::infinity());
  return std::fabs((got - rounded) / (next - std::fabs(rounded)));
}

template <typename T>
void ExpectFloatsFollowTheirDefinition() {
  for (int k = static_cast<int>(ExprOp::kAdd); k <= static_cast<int>(ExprOp::kRound); ++k) {
    const auto op = static_cast<ExprOp>(k);
    const bool is_own = op == ExprOp::kExp || op == ExprOp::kLog || op == ExprOp::kTanh || op == ExprOp::kSigmoid ||
                        op == ExprOp::kErfc;
    const ExprFunction* function = FindExprFunction(op);
    const bool is_library = function != nullptr && !function->is_exact;
    const double limit = op == ExprOp::kErfc ? 5 : is_own ? 4 : is_library || op == ExprOp::kPow ? 2 : 0;
    std::mt19937 random(5);
    for (int i = 0; i < 3000; ++i) {
      std::vector<ExprScalar> operands;
      double values[3] = {};
      for (int operand = 0; operand < OperandsOf(op); ++operand) {
        operands.push_back(RandomScalar(kDTypeOf<T>, random));
        values[operand] = AsDouble(operands.back());
      }
      const T got = EvaluatePrimitive(op, kDTypeOf<T>, operands).template As<T>();
      // A float product is exact in double and its sum with a float is not: fma in double would round twice.
      if (op == ExprOp::kMulAdd && sizeof(T) == 4) {
        ASSERT_LE(
            Distance<T>(got, static_cast<double>(std::fma(static_cast<long double>(values[0]), values[1], values[2]))),
            1);
        continue;
      }
      ASSERT_LE(Distance<T>(got, Definition(op, values[0], values[1], values[2])), limit)
          << ExprOpName(op) << " of " << values[0] << ", " << values[1] << " gives " << got;
    }
  }
}

// Errors in units of the last place: 0 where a result is rounded once, 2 for the C library's functions, 3 for those of
// vector_math.h (as measured over their whole range by its own test), one more for the double that they are held
// against.
TEST(ExprEvaluate, FloatsFollowTheirDefinitionOnEveryTarget) {
  ForEachTarget([] {
    ExpectFloatsFollowTheirDefinition<float>();
    ExpectFloatsFollowTheirDefinition<double>();
  });
}

// A NaN that signals is a NaN as any other, though the C library makes a difference.
TEST(ExprEvaluate, PowersDoNotAskWhichNaNItIs) {
  using Limits = std::numeric_limits<float>;
  for (const float nan : {Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    EXPECT_EQ(Primitive<float>(ExprOp::kPow, {nan, 0}).As<float>(), 1);
    EXPECT_EQ(Primitive<float>(ExprOp::kPow, {1, nan}).As<float>(), 1);
    EXPECT_TRUE(std::isnan(Primitive<float>(ExprOp::kPow, {nan, 2}).As<float>()));
  }
}

template <typename T>
void ExpectIntegersWrap() {
  using Wide = __int128;
  constexpr T kLowest = std::numeric_limits<T>::min();
  std::mt19937 random(6);
  const auto wrap = [](Wide value) { return static_cast<T>(static_cast<std::make_unsigned_t<T>>(value)); };
  for (int i = 0; i < 3000; ++i) {
    const T a = RandomScalar(kDTypeOf<T>, random).template As<T>();
    const T b = RandomScalar(kDTypeOf<T>, random).template As<T>();
    const T c = RandomScalar(kDTypeOf<T>, random).template As<T>();
    const auto gives = [&](ExprOp op, std::initializer_list<T> operands) {
      return Primitive<T>(op, operands).template As<T>();
    };
    ASSERT_EQ(gives(ExprOp::kAdd, {a, b}), wrap(Wide{a} + b));
    ASSERT_EQ(gives(ExprOp::kSubtract, {a, b}), wrap(Wide{a} - b));
    ASSERT_EQ(gives(ExprOp::kMultiply, {a, b}), wrap(Wide{a} * b));
    ASSERT_EQ(gives(ExprOp::kMulAdd, {a, b, c}), wrap(Wide{a} * b + c));
    ASSERT_EQ(gives(ExprOp::kDivide, {a, b}), b == 0 ? 0 : wrap(Wide{a} / b));
    ASSERT_EQ(gives(ExprOp::kMod, {a, b}), b == 0 ? 0 : wrap(Wide{a} % b));
    ASSERT_EQ(gives(ExprOp::kNegate, {a}), wrap(-Wide{a}));
    ASSERT_EQ(gives(ExprOp::kAbs, {a}), wrap(a < 0 ? -Wide{a} : Wide{a}));
    ASSERT_EQ(gives(ExprOp::kSign, {a}), (a > 0) - (a < 0));
    ASSERT_EQ(gives(ExprOp::kMin, {a, b}), std::min(a, b));
    ASSERT_EQ(gives(ExprOp::kMax, {a, b}), std::max(a, b));
  }
  EXPECT_EQ(Primitive<T>(ExprOp::kDivide, {kLowest, -1}).template As<T>(), kLowest);
}

TEST(ExprEvaluate, IntegersWrapAround) {
  ExpectIntegersWrap<std::int32_t>();
  ExpectIntegersWrap<std::int64_t>();
}

TEST(ExprEvaluate, ComparesByValue) {
  std::mt19937 random(7);
  for (const DType dtype : kExprTypes) {
    for (int i = 0; i < 500; ++i) {
      const ExprScalar operands[] = {RandomScalar(dtype, random), RandomScalar(dtype, random)};
      const auto gives = [&](ExprOp op) { return EvaluatePrimitive(op, DType::kBool, operands).As<bool>(); };
      ForExprType(dtype, [&](auto zero) {
        const auto a = operands[0].As<decltype(zero)>(), b = operands[1].As<decltype(zero)>();
        ASSERT_EQ(gives(ExprOp::kEqual), a == b);
        ASSERT_EQ(gives(ExprOp::kNotEqual), a != b);
        ASSERT_EQ(gives(ExprOp::kLess), a < b);
        ASSERT_EQ(gives(ExprOp::kLessEqual), a <= b);
      });
    }
  }
}

TEST(ExprEvaluate, CastsAsTheOperatorDoes) {
  const auto cast = [](DType to, ExprScalar x) { return AsDouble(EvaluatePrimitive(ExprOp::kCast, to, {&x, 1})); };
  EXPECT_EQ(cast(DType::kInt32, ScalarOf(-2.9f)), -2);
  EXPECT_EQ(cast(DType::kInt32, ScalarOf(3e9f)), 2147483647);
  EXPECT_EQ(cast(DType::kInt32, ScalarOf(-kInfinity)), -2147483648.0);
  EXPECT_EQ(cast(DType::kInt64, ScalarOf(kNaN)), 0);
  EXPECT_EQ(cast(DType::kInt32, ScalarOf(std::int64_t{0x1'0000'0005})), 5);
  EXPECT_EQ(cast(DType::kBool, ScalarOf(0.5f)), 1);
  EXPECT_EQ(cast(DType::kBool, ScalarOf(-0.0)), 0);
  EXPECT_EQ(cast(DType::kBool, ScalarOf(kNaN)), 1);
  EXPECT_EQ(cast(DType::kFloat, ScalarOf(std::int32_t{16777217})), 16777216);
  EXPECT_EQ(cast(DType::kFloat, ScalarOf(1e300)), kInfinity);
  EXPECT_EQ(cast(DType::kDouble, ScalarOf(true)), 1);
}

// Between two neighbours in 16 bits the nearer one, and in the middle the even one: of every dtype at once.
TEST(ExprEvaluate, RoundsOnceTo16Bits) {
  for (const DType stored : {DType::kFloat16, DType::kBFloat16}) {
    const auto loaded = [&](std::uint64_t bits) { return double{Loaded({.dtype = stored, .bits = bits})}; };
    const auto cast = [&](ExprScalar x) { return EvaluatePrimitive(ExprOp::kCast, stored, {&x, 1}).bits; };
    for (std::uint64_t bits = 0; std::isfinite(loaded(bits)); ++bits) {
      const double low = loaded(bits);
      const double next = loaded(bits + 1), high = std::isfinite(next) ? next : 2 * low - loaded(bits - 1);
      const double middle = (low + high) / 2;
      const std::uint64_t even = bits % 2 == 0 ? bits : bits + 1;
      ASSERT_EQ(cast(ScalarOf(low)), bits);
      ASSERT_EQ(cast(ScalarOf(middle)), even);
      ASSERT_EQ(cast(ScalarOf(-middle)), even | 0x8000);
      ASSERT_EQ(cast(ScalarOf(std::nextafter(middle, 0))), bits);
      ASSERT_EQ(cast(ScalarOf(std::nextafter(middle, kInfinity))), bits + 1);
      ASSERT_EQ(cast(ScalarOf(-std::nextafter(middle, kInfinity))), (bits + 1) | 0x8000);
      if (middle != std::trunc(middle) || middle >= 0x1p62) continue;
      const auto whole = static_cast<std::int64_t>(middle);
      ASSERT_EQ(cast(ScalarOf(whole)), even);
      ASSERT_EQ(cast(ScalarOf(whole - 1)), bits);
      ASSERT_EQ(cast(ScalarOf(whole + 1)), bits + 1);
      ASSERT_EQ(cast(ScalarOf(-whole - 1)), (bits + 1) | 0x8000);
      if (middle >= 0x1p31) continue;
      ASSERT_EQ(cast(ScalarOf(static_cast<std::int32_t>(whole))), even);
      ASSERT_EQ(cast(ScalarOf(static_cast<std::int32_t>(whole - 1))), bits);
      ASSERT_EQ(cast(ScalarOf(static_cast<std::int32_t>(-whole - 1))), (bits + 1) | 0x8000);
    }
    EXPECT_EQ(cast(ScalarOf(1e300)), cast(ScalarOf(std::numeric_limits<float>::infinity())));
    EXPECT_TRUE(std::isnan(loaded(cast(ScalarOf(kNaN)))));
  }
}

TEST(ExprEvaluate, DrawsTheNumbersOfRandomStreams) {
  const Expr element = Expr::Input(0, "element", DType::kInt64);
  for (std::int64_t i = 0; i < 10; ++i) {
    const RandomStream stream(3, 5, 7, 11);
    const ExprRow row{.input = [&](const ExprNode&, std::int64_t) { return ScalarOf(i); }};
    const Expr as_float = Uniform(DType::kFloat, 3, 5, 7, 11, element);
    const Expr as_double = Uniform(DType::kDouble, 3, 5, 7, 11, element);
    const std::uint64_t u = static_cast<std::uint64_t>(i);
    EXPECT_EQ(EvaluateRow({&as_float, 1}, row).values[0][0].As<float>(), stream.Uniform(u));
    EXPECT_EQ(EvaluateRow({&as_double, 1}, row).values[0][0].As<double>() * 0x1p32, stream.Word(u));
  }
}

TEST(ExprEvaluate, ReducesRows) {
  const Expr x = Expr::Input(0, "x", DType::kFloat);
  const Expr softmax = Exp(x - RowMax(x)) / RowSum(Exp(x - RowMax(x)));
  const ExprRow row{.columns = 40, .input = [](const ExprNode&, std::int64_t j) { return ScalarOf(float(j % 7)); }};
  double sum = 0;
  const ExprRowValues probabilities = EvaluateRow({&softmax, 1}, row);
  for (const ExprScalar& value : probabilities.values[0]) sum += value.As<float>();
  EXPECT_NEAR(sum, 1, 1e-6);
  const Expr sums[] = {RowSum(x), RowMax(x), RowMax(Cast(DType::kInt32, x)), RowSum(Cast(DType::kInt64, x))};
  const ExprRowValues values = EvaluateRow(sums, row);
  EXPECT_EQ(AsDouble(values.values[0][39]), 5 * 21 + 10);
  EXPECT_EQ(AsDouble(values.values[1][0]), 6);
  EXPECT_EQ(AsDouble(values.values[2][0]), 6);
  EXPECT_EQ(AsDouble(values.values[3][0]), 5 * 21 + 10);
}

TEST(ExprEvaluate, NamesTheFirstFault) {
  const Expr x = Expr::Input(0, "x", DType::kInt32);
  const Expr checks[] = {Require(x < 8, "{} is too big", x), Require(x < 5, "big")};
  const ExprRow row{.columns = 9, .input = [](const ExprNode&, std::int64_t j) { return ScalarOf(std::int32_t(j)); }};
  const ExprRowValues values = EvaluateRow(checks, row);
  ASSERT_TRUE(values.fault);
  EXPECT_EQ(values.fault->column, 5);
  EXPECT_EQ(FaultMessage(*values.fault->require, values.fault->values), "big");
  const ExprRowValues first = EvaluateRow({checks, 1}, row);
  EXPECT_EQ(first.fault->column, 8);
  EXPECT_EQ(FaultMessage(*first.fault->require, first.fault->values), "8 is too big");
  const Expr of_two = Require(x < 3, "element {} is {}, {}", Index(3), x + 10);
  const ExprRowValues two = EvaluateRow({&of_two, 1}, row);
  EXPECT_EQ(FaultMessage(*two.fault->require, two.fault->values), "element 3 is 13, {}");
}

}  // namespace
}  // namespace stepnet
