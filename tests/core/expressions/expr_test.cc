#include "stepnet/core/expressions/expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "random_exprs.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);
const Expr y = Expr::Input(1, "y", DType::kFloat);
const Expr n = Expr::Input(2, "n", DType::kInt32);
const Expr flag = Expr::Input(3, "flag", DType::kBool);

TEST(Expr, EqualExpressionsAreOneNode) {
  EXPECT_TRUE((Tanh(x * y + 2)).Is(Tanh(x * y + 2)));
  EXPECT_TRUE(Expr::Input(0, "x", DType::kFloat).Is(x));
  EXPECT_FALSE((x + y).Is(y + x));
  EXPECT_FALSE(Expr::Input(0, "x", DType::kDouble).Is(x));
  EXPECT_FALSE(Expr::Input(4, "x", DType::kFloat).Is(x));
  EXPECT_FALSE(Require(flag, "one").Is(Require(flag, "two")));
  EXPECT_TRUE((x > y).Is(y < x));
  EXPECT_TRUE((x * std::nan("")).Is(x * -std::nan("1")));
  EXPECT_FALSE((x * 0.0).Is(x * -0.0));
}

TEST(Expr, NodesGoWithTheirLastUse) {
  const std::int64_t before = NumExprNodes();
  {
    Expr deep = Expr::Input(0, "that nothing else reads", DType::kFloat);
    for (int i = 0; i < 200'000; ++i) deep = Tanh(deep);
    const Expr copy = deep;
    EXPECT_EQ(ExprNodes({&copy, 1}).size(), 200'001u);
    EXPECT_GE(NumExprNodes(), before + 200'000);
  }
  EXPECT_EQ(NumExprNodes(), before);
}

TEST(Expr, IsBuiltAndDroppedByManyThreads) {
  const std::int64_t before = NumExprNodes();
  const auto work = [] {
    for (int i = 0; i < 2000; ++i) {
      const Expr a = Tanh(x + i % 7);
      const Expr b = Tanh(x + i % 7) * y;
      ASSERT_TRUE(Expr::Of(b->operands[0]).Is(a));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(NumExprNodes(), before);
}

TEST(Expr, ListsEachNodeOnceBehindItsOperands) {
  Expr shared = x;
  for (int i = 0; i < 60; ++i) shared = shared * shared;  // 2^60 paths
  EXPECT_EQ(ExprNodes({&shared, 1}).size(), 61u);
}

TEST(Expr, LiteralsTakeTheDTypeOfWhatTheyMeet) {
  EXPECT_EQ((1 + n).dtype(), DType::kInt32);
  EXPECT_EQ((0.5 * x).dtype(), DType::kFloat);
  EXPECT_TRUE((x * 0.1).Is(x * Expr::Constant(DType::kFloat, 0.1f)));
  EXPECT_TRUE(Where(flag, 0, n).Is(Where(flag, Expr::Constant(DType::kInt32, 0), n)));
  EXPECT_TRUE((x * -Expr(3)).Is(x * -3));
  EXPECT_EQ(Cast(DType::kDouble, 1).dtype(), DType::kDouble);
  EXPECT_EQ((Expr::Input(0, "k", DType::kInt64) + 9007199254740993)->operands[1]->bits, 9007199254740993u);
}

TEST(Expr, RefusesDTypesThatDoNotFit) {
  EXPECT_EQ(ErrorOf([] { x + n; }), "type mismatch: x + n: x is float and n int32; Cast makes them alike");
  EXPECT_EQ(ErrorOf([] { Tanh(n); }), "type mismatch: tanh(n): n is int32, must be float or double");
  EXPECT_EQ(ErrorOf([] { -flag; }), "type mismatch: -flag: flag is bool, must be numbers");
  EXPECT_EQ(ErrorOf([] { And(flag, x < y) + 1; }), "type mismatch: (flag && x < y) + 1: 1 is no bool");
  EXPECT_EQ(ErrorOf([] { n + 0.5; }), "type mismatch: n + 0.5: 0.5 is no int32");
  EXPECT_EQ(ErrorOf([] { n + 3000000000; }), "type mismatch: n + 3000000000: 3000000000 is no int32");
  const Expr k = Expr::Input(0, "k", DType::kInt64);
  EXPECT_EQ(ErrorOf([&] { k + 0x1p63; }), "type mismatch: k + 9223372036854775808: 9223372036854775808 is no int64");
  EXPECT_EQ(ErrorOf([] { Expr::Constant(DType::kInt64, 0x1p63); }),
            "type mismatch: the constant 9.22337e+18 is no int64");
  EXPECT_TRUE(Expr::Constant(DType::kInt64, -0x1p63).Is(Cast(DType::kInt64, std::numeric_limits<std::int64_t>::min())));
  EXPECT_EQ(ErrorOf([] { Where(x, y, y * 2); }),
            "type mismatch: where(x, y, y * 2): the condition is float, must be bool");
  EXPECT_EQ(ErrorOf([] { Where(flag, 1, 0); }), "type mismatch: where(flag, 1, 0): nothing says of what dtype 1 is");
  EXPECT_EQ(ErrorOf([] { Expr(1) + 2; }), "type mismatch: 1 + 2: nothing says of what dtype 1 is");
  EXPECT_EQ(ErrorOf([] { Tanh(Tanh(Tanh(Tanh(Tanh(x))))) + n; }),
            "type mismatch: tanh(tanh(…)) + n: tanh(tanh(tanh(…))) is float and n int32; Cast makes them alike");
  EXPECT_EQ(
      ErrorOf([] { Expr::Input(0, "s", DType::kString); }),
      "type mismatch: input s is string; expressions are of float, double, int32, int64 and bool, and store float16 "
      "and bfloat16");
  EXPECT_EQ(ErrorOf([] { Expr::Input(-1, "s", DType::kBool); }), "invalid argument: input s has the number -1");
  EXPECT_EQ(ErrorOf([] { Index(4); }), "internal error: index of dimension 4; a region has 0 to 3");
  EXPECT_EQ(ErrorOf([] { Tanh(Expr()); }), "internal error: tanh has an undefined operand");
  EXPECT_EQ(ErrorOf([] { MakeExpr(ExprOp::kAdd, {&x, 1}); }), "internal error: +(x) has 1 operand, must have 2");
  EXPECT_EQ(ErrorOf([] { Cast(DType::kInt8, x); }).substr(0, 40), "type mismatch: what is cast to is int8; ");
  EXPECT_EQ(ErrorOf([] { Uniform(DType::kFloat16, 1, 2, 3, 4, Index(3)); }),
            "type mismatch: uniform gives float or double, not float16");
}

// 16 bits are loaded and stored, by way of float; nothing else computes with them.
TEST(Expr, StoresSixteenBits) {
  const Expr half = Expr::Input(3, "h", DType::kFloat16), loaded = Cast(DType::kFloat, half);
  const std::string only_stored = "h is float16, which is only stored; Cast to float computes with it";
  EXPECT_EQ(ErrorOf([&] { half + half; }), "type mismatch: h + h: " + only_stored);
  EXPECT_EQ(ErrorOf([&] { half + 1; }), "type mismatch: h + 1: " + only_stored);
  EXPECT_EQ(ErrorOf([&] { 2 - half; }), "type mismatch: 2 - h: " + only_stored);
  EXPECT_EQ(ErrorOf([&] { Where(flag, half, half); }), "type mismatch: where(flag, h, h): " + only_stored);
  EXPECT_EQ(ErrorOf([&] { Require(flag, "{}", half); }), "type mismatch: require(flag, \"{}\", h): " + only_stored);
  EXPECT_TRUE(Cast(DType::kFloat16, loaded).Is(half));
  EXPECT_TRUE(Cast(DType::kFloat16, half).Is(half));
  EXPECT_TRUE(Cast(DType::kDouble, half).Is(Cast(DType::kDouble, loaded)));
  EXPECT_TRUE(Cast(DType::kBFloat16, half).Is(Cast(DType::kBFloat16, loaded)));
  EXPECT_FALSE(Cast(DType::kFloat16, n).Is(Cast(DType::kFloat16, Cast(DType::kFloat, n)))) << "it is rounded once";
  EXPECT_TRUE(Cast(DType::kFloat16, Cast(DType::kDouble, x)).Is(Cast(DType::kFloat16, x)));
  EXPECT_FALSE(Cast(DType::kFloat, Cast(DType::kFloat16, x)).Is(x)) << "it has been rounded";
  EXPECT_TRUE(Cast(DType::kFloat16, Expr(0.1)).Is(Expr::Constant(DType::kFloat16, 0.1)));
  EXPECT_TRUE(Cast(DType::kFloat, Expr::Constant(DType::kFloat16, 65519)).Is(Expr::Constant(DType::kFloat, 65504)));
  EXPECT_TRUE(Expr::Constant(DType::kBFloat16, std::nan("")).Is(Expr::Constant(DType::kBFloat16, -std::nan(""))));
}

TEST(Expr, ComputesConstants) {
  const Expr two = Expr::Constant(DType::kFloat, 2);
  EXPECT_TRUE((two * 3 + 0.5).Is(Expr::Constant(DType::kFloat, 6.5)));
  EXPECT_TRUE(Where(two > 1, x, y).Is(x));
  EXPECT_TRUE((Expr::Constant(DType::kInt32, 2147483647) + 1).Is(Expr::Constant(DType::kInt32, -2147483648.0)));
  EXPECT_TRUE((two / 0).Is(Expr::Constant(DType::kFloat, std::numeric_limits<double>::infinity())));
  EXPECT_TRUE((Expr::Constant(DType::kInt64, 5) / 2).Is(Expr::Constant(DType::kInt64, 2)));
  // What is known to fail fails in the run.
  EXPECT_EQ((Expr::Constant(DType::kInt64, 5) / 0)->op, ExprOp::kDivide);
  EXPECT_EQ(Require(false, "never")->op, ExprOp::kRequire);
}

TEST(Expr, AppliesWhatIsExact) {
  EXPECT_TRUE((x * 1).Is(x));
  EXPECT_TRUE((1 * x).Is(x));
  EXPECT_TRUE((x / 1).Is(x));
  EXPECT_TRUE((x - 0).Is(x));
  EXPECT_TRUE((x + -0.0).Is(x));
  EXPECT_TRUE((n + 0).Is(n));
  EXPECT_TRUE((n - 0).Is(n));
  EXPECT_TRUE((n - n).Is(Expr::Constant(DType::kInt32, 0)));
  EXPECT_TRUE((-(-x)).Is(x));
  EXPECT_TRUE((x * -1).Is(-x));
  EXPECT_TRUE((x + -y).Is(x - y));
  EXPECT_TRUE(Not(Not(flag)).Is(flag));
  EXPECT_TRUE(Where(flag, x, x).Is(x));
  EXPECT_TRUE(Where(Not(flag), x, y).Is(Where(flag, y, x)));
  EXPECT_TRUE(Cast(DType::kFloat, Cast(DType::kDouble, x)).Is(x));
  EXPECT_TRUE(MulAdd(1, x, y).Is(x + y));
  EXPECT_TRUE(MulAdd(x, y, -0.0).Is(x * y));
  EXPECT_TRUE(Pow(x, 1).Is(x));
}

TEST(Expr, LeavesWhatIsNotExact) {
  EXPECT_FALSE((x + 0).Is(x));
  EXPECT_EQ((x * 0)->op, ExprOp::kMultiply);
  EXPECT_EQ((x - x)->op, ExprOp::kSubtract);
  EXPECT_EQ(Equal(x, x)->op, ExprOp::kEqual);
  EXPECT_EQ(MulAdd(x, y, 0)->op, ExprOp::kMulAdd);
  EXPECT_EQ(Not(x < y)->op, ExprOp::kNot);
  EXPECT_EQ(Cast(DType::kInt32, Cast(DType::kFloat, n))->op, ExprOp::kCast);
  // A requirement holds though nothing uses its value.
  EXPECT_TRUE(And(false, Require(flag, "must"))->has_require());
  EXPECT_TRUE(Where(Require(flag, "must"), x, x)->has_require());
}

// Two inputs x, or one and a constant, of every odd number: builders give what their op gives.
template <typename T>
void ExpectExactForOddNumbers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> odd = {0, 1, static_cast<T>(-1), 2, Limits::min(), Limits::lowest(), Limits::max()};
  if constexpr (std::is_floating_point_v<T>) {
    for (const T value : {-T{0}, T{0.5}, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                          Limits::denorm_min(), -Limits::denorm_min()}) {
      odd.push_back(value);
    }
  }
  const Expr input = Expr::Input(0, "x", kDTypeOf<T>);
  for (int k = static_cast<int>(ExprOp::kAdd); k <= static_cast<int>(ExprOp::kLessEqual); ++k) {
    const auto op = static_cast<ExprOp>(k);
    for (const T constant : odd) {
      const Expr number = ConstantOf(ScalarOf(constant));
      for (const auto& [a, b] :
           {std::pair(input, number), std::pair(number, input), std::pair(input, input), std::pair(input, -input)}) {
        for (const Expr& c : {input, number}) {
          const std::vector<Expr> operands = {a, b, c};
          for (size_t count = 1; count <= 3; ++count) {
            Expr made;
            try {
              made = MakeExpr(op, {operands.data(), count});
            } catch (const Error&) {  // another number of operands, or dtype
              continue;
            }
            for (const T value : odd) {
              const ExprRow row{.input = [&](const ExprNode&, std::int64_t) { return ScalarOf(value); }};
              std::vector<ExprScalar> given;
              for (size_t i = 0; i < count; ++i) given.push_back(EvaluateRow({&operands[i], 1}, row).values[0][0]);
              const ExprScalar want = EvaluatePrimitive(op, made.dtype(), given);
              const ExprScalar got = EvaluateRow({&made, 1}, row).values[0][0];
              ASSERT_TRUE(SameScalar(got, want))
                  << ExprOpName(op) << " of " << ScalarText(given[0]) << " and " << ScalarText(given[count - 1])
                  << " gives " << ScalarText(got) << ", not " << ScalarText(want) << "\n"
                  << PrintExpr(made);
            }
          }
        }
      }
    }
  }
}

TEST(Expr, SimplifiesExactlyForOddNumbers) {
  ExpectExactForOddNumbers<float>();
  ExpectExactForOddNumbers<double>();
  ExpectExactForOddNumbers<std::int32_t>();
  ExpectExactForOddNumbers<std::int64_t>();
}

// Builders give what their op gives, whatever they fold and simplify.
TEST(Expr, KeepsValuesOfRandomExpressions) {
  int simplified = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::vector<Expr> leaves;
    for (int i = 0; i < 7; ++i) leaves.push_back(Expr::Input(i, StrCat("x", i), kOperandTypes[i]));
    const std::vector<RandomExprStep> steps = RandomExprSteps(leaves, {.steps = 12, .stored_too = true}, random);
    std::vector<ExprScalar> given;
    for (const DType dtype : kOperandTypes) given.push_back(RandomScalar(dtype, random));
    const ExprRow row{.input = [&](const ExprNode& input, std::int64_t) { return given[input.number]; }};
    std::vector<ExprScalar> values;
    for (const RandomExprStep& step : steps) {
      const ExprScalar got = EvaluateRow({&step.result, 1}, row).values[0][0];
      if (step.operands.empty()) {
        values.push_back(got);
        continue;
      }
      std::vector<ExprScalar> operands;
      for (const int operand : step.operands) operands.push_back(values[operand]);
      values.push_back(EvaluatePrimitive(step.op, step.result.dtype(), operands));
      ASSERT_TRUE(SameScalar(values.back(), got)) << "seed " << seed << "\n"
                                                  << PrintExpr(step.result) << "gives " << ScalarText(got) << ", not "
                                                  << ScalarText(values.back()) << " of " << ExprOpName(step.op);
      simplified += step.result->op != step.op;
    }
  }
  EXPECT_GT(simplified, 1000);
}

}  // namespace
}  // namespace stepnet
