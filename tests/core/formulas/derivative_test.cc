#include "stepnet/core/formulas/derivative.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "formula_run.h"
#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/expressions/random_exprs.h"

namespace stepnet {
namespace {

using Reach = InputGradient::Reach;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

const Expr x = Expr::Input(0, "x", DType::kFloat);
const Expr y = Expr::Input(1, "y", DType::kFloat);
const Expr dy = Expr::Input(2, "dy", DType::kFloat);

// The gradient of x where `value` gets dy, and its text's last line.
Expr GradientOf(const Expr& value, const Expr& stored = {}) {
  return Differentiate(std::vector<DerivativeOutput>{{.value = value, .gradient = dy, .stored = stored}}, {{x}})[0]
      .value;
}

std::string InputText(std::string_view names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += StrCat("in ", i, " ", names.substr(i, 1), ": double\n");
  return text;
}

// A function of a and b (and c), and where it has a derivative.
struct Primitive {
  const char* text;
  double low = -2;
  double high = 2;
};

class DerivativeOfPrimitive : public testing::TestWithParam<Primitive> {};

// Truncation and rounding of a central difference with a step of 1e-5 are some 1e-10 of values and derivatives near 1.
TEST_P(DerivativeOfPrimitive, IsACentralDifference) {
  const Primitive& primitive = GetParam();
  for (const bool stores : {false, true}) {
    for (const ExprAccess& access : {kElementAccess, kRowAccess, kColumnAccess, kScalarAccess}) {
      FormulaRun run(InputText("abc") + "out " + primitive.text, {kElementAccess, access, kElementAccess});
      run.stores_outputs = stores;
      std::mt19937 random(11);
      run.Fill(random, primitive.low, primitive.high);
      ExpectGradientsAreDifferences(&run);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DerivativeOfPrimitive,
    testing::Values(
        Primitive{"a + b"}, Primitive{"a - b"}, Primitive{"b - a"}, Primitive{"a * b"}, Primitive{"b * b"},
        Primitive{"a * 3"}, Primitive{"a / b", 0.5, 2}, Primitive{"b / a", -2, -0.5}, Primitive{"1 / b", 0.5, 2},
        Primitive{"3 / b", 0.5, 2}, Primitive{"1 / sqrt(b)", 0.5, 2}, Primitive{"a % b", 1.1, 2},
        Primitive{"(5 * a) % b", 1.1, 1.19}, Primitive{"(-9 * a) % b", 1.1, 1.19}, Primitive{"min(a, b)"},
        Primitive{"max(a, b)"}, Primitive{"min(a, 0.5)"}, Primitive{"max(-0.5, b)"}, Primitive{"min(max(b, -1), 1)"},
        Primitive{"max(min(b, 1), -1)"}, Primitive{"pow(a, b)", 0.5, 2}, Primitive{"pow(a, 2)"}, Primitive{"pow(a, 3)"},
        Primitive{"pow(a, 4)"}, Primitive{"pow(a, -1)", 0.5, 2}, Primitive{"pow(a, 1.5)", 0.5, 2},
        Primitive{"pow(a, 0.0)"}, Primitive{"pow(2, b)"}, Primitive{"mul_add(a, b, c)"}, Primitive{"mul_add(b, b, a)"},
        Primitive{"mul_add(b, 2, b)"}, Primitive{"-b"}, Primitive{"abs(b)"}, Primitive{"sqrt(b)", 0.5, 2},
        Primitive{"exp(b)"}, Primitive{"expm1(b)"}, Primitive{"log(b)", 0.5, 2}, Primitive{"log1p(b)", -0.5, 2},
        Primitive{"tanh(b)"}, Primitive{"sigmoid(b)"}, Primitive{"erf(b)"}, Primitive{"erfc(b)"}, Primitive{"sin(b)"},
        Primitive{"cos(b)"}, Primitive{"where(a < c, a * b, c / 4 + b)"}, Primitive{"row_sum(a * b)"},
        Primitive{"row_sum(b)"}, Primitive{"row_max(a * 2)"}, Primitive{"row_max(a * exp(b))"}, Primitive{"row_max(b)"},
        Primitive{"row_max(b) * row_sum(b) * b * a"},
        Primitive{"a * sign(b) + floor(a) * b + ceil(c) * round(b)", 0.55, 0.95}));

TEST(Derivative, OfCastsRoundsTheGradient) {
  FormulaRun run("in 0 x: double\nout double(float(x) * 2)", {kElementAccess});
  std::mt19937 random(3);
  run.Fill(random);
  const std::vector<double> dx = run.Gradients()[0];
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], 2 * static_cast<float>(run.gradients[0][i]));
}

TEST(Derivative, ReadsWhatIsStoredInPlaceOfItsInput) {
  const auto text = [](const Expr& value) { return PrintExpr(GradientOf(value, y)); };
  const std::string inputs = "in 2 dy: float\nin 1 y: float\n";
  EXPECT_EQ(text(Tanh(x)), inputs + "out dy * (1 - y * y)\n");
  EXPECT_EQ(text(Sigmoid(x)), inputs + "out dy * y * (1 - y)\n");
  EXPECT_EQ(text(Exp(x)), inputs + "out dy * y\n");
  EXPECT_EQ(text(Expm1(x)), inputs + "out dy * (y + 1)\n");
  EXPECT_TRUE(GradientOf(Expm1(x)).Is(dy * Exp(x)));
  EXPECT_EQ(text(Sqrt(x)), inputs + "out dy * 0.5 / y\n");
  EXPECT_EQ(text(1 / x), inputs + "out -dy * (y * y)\n");
  EXPECT_EQ(text(1 / Sqrt(x)), inputs + "out dy * (y * y * y) * -0.5\n");
  EXPECT_EQ(text(Max(x, 0)), "in 1 y: float\nin 2 dy: float\nout where(0 < y, dy, 0)\n");
  EXPECT_EQ(text(Min(Max(x, -2), 3)), "in 1 y: float\nin 2 dy: float\nout where(y < 3 && -2 < y, dy, 0)\n");
  EXPECT_EQ(text(Max(-2, Min(3, x))), "in 1 y: float\nin 2 dy: float\nout where(-2 < y && y < 3, dy, 0)\n");
  // A bound that the other one hides says nothing about the result.
  EXPECT_EQ(text(Max(Max(x, 3), 5)),
            "in 1 y: float\nin 0 x: float\nin 2 dy: float\nout where(5 < y && 3 < x, dy, 0)\n");
  // Nothing passes where both bounds are the result.
  for (const Expr& none : {Min(Max(x, 3), 3), Max(Min(3, x), 3), Min(2, Max(3, x))}) {
    EXPECT_FALSE(GradientOf(none, y).defined());
  }
  // What lies between the stored output and another one is computed from the stored one.
  const Expr c = Tanh(x), h = Sin(2 * c), dh = Expr::Input(3, "dh", DType::kFloat);
  const DerivativeOutput outputs[] = {{.value = c, .stored = y}, {.value = h, .gradient = dh}};
  EXPECT_EQ(PrintExpr(Differentiate(outputs, {{x}})[0].value),
            "in 3 dh: float\nin 1 y: float\nout dh * cos(2 * y) * 2 * (1 - y * y)\n");
}

TEST(Derivative, HasTiesAsCaffe2) {
  const auto at = [](const Expr& value, double a, double b) {
    FormulaRun run({value}, {kElementAccess, kElementAccess});
    run.num_rows = run.num_columns = 1;
    run.values = {{a}, {b}};
    run.gradients = {{7}};
    return run.Gradients();
  };
  using Values = std::vector<std::vector<double>>;
  EXPECT_EQ(at(Max(x, y), 2, 2), Values({{7}, {7}}));
  EXPECT_EQ(at(Min(x, y), 0, -0.0), Values({{7}, {7}}));
  EXPECT_EQ(at(Max(x, y), 2, 1), Values({{7}, {0}}));
  EXPECT_EQ(at(Min(x, y), 2, 1), Values({{0}, {7}}));
  EXPECT_EQ(at(Max(x, y), kNaN, 1), Values({{0}, {0}}));
  EXPECT_EQ(at(Max(x, y), 1, kNaN), Values({{0}, {0}}));
  EXPECT_EQ(at(Max(x, 0), 0, 0)[0][0], 0);
  EXPECT_EQ(at(Max(x, 0), kNaN, 0)[0][0], 0);
  EXPECT_EQ(at(Min(Max(x, -1), 1), 1, 0)[0][0], 0);
  EXPECT_EQ(at(Min(Max(x, -1), 1), -1, 0)[0][0], 0);
  EXPECT_EQ(at(Min(Max(x, -1), 1), 0.5, 0)[0][0], 7);
  EXPECT_EQ(at(Abs(x), 0, 0)[0][0], 0);
  EXPECT_EQ(at(Abs(x), -0.0, 0)[0][0], 0);
  EXPECT_EQ(at(Abs(x), -3, 0)[0][0], -7);
  FormulaRun row("in 0 x: float\nout row_max(x)", {kElementAccess}, {0});
  row.num_rows = 1;
  row.values = {{1, 3, 3, -kInfinity, 3}};
  row.gradients = {{5}};
  EXPECT_EQ(row.Gradients(), Values({{0, 5, 5, 0, 5}}));
}

// The example of docs/add_an_operator.md.
TEST(Derivative, CountsTiesInChainsOnceForEachWay) {
  const auto gradients = [](const std::string& value, const std::vector<double>& abc) {
    FormulaRun run(InputText("abc") + "out " + value, {kElementAccess, kElementAccess, kElementAccess});
    run.num_rows = run.num_columns = 1;
    run.values = {{abc[0]}, {abc[1]}, {abc[2]}};
    run.gradients = {{7}};
    std::vector<double> of;
    for (const std::vector<double>& each : run.Gradients()) of.push_back(each.empty() ? 0 : each[0]);
    return of;
  };
  using Gradients = std::vector<double>;
  const std::string one_step = "max(max(a, b), max(a, c))";
  const std::string two_steps = "max(max(" + one_step + ", b), max(" + one_step + ", c))";
  EXPECT_EQ(gradients(one_step, {2, 2, 2}), Gradients({14, 7, 7}));
  EXPECT_EQ(gradients(two_steps, {2, 2, 2}), Gradients({28, 21, 21}));
  EXPECT_EQ(gradients(one_step, {2, 1, 1}), Gradients({14, 0, 0}));
  EXPECT_EQ(gradients(one_step, {1, 2, 1}), Gradients({0, 7, 0}));
  EXPECT_EQ(gradients("min(max(a, b), c)", {2, 2, 2}), Gradients({7, 7, 7}));
  EXPECT_EQ(gradients("where(a >= b, a, b)", {2, 2, 2}), Gradients({7, 0, 0}));
}

TEST(Derivative, OfPowersFollowsTheirLimits) {
  const auto at = [](double a, double b) {
    FormulaRun run("in 0 a: double\nin 1 b: double\nout pow(a, b)", {kElementAccess, kElementAccess});
    run.num_rows = run.num_columns = 1;
    run.values = {{a}, {b}};
    run.gradients = {{1}};
    return run.Gradients();
  };
  EXPECT_EQ(at(0, 0)[0][0], 0);
  EXPECT_EQ(at(kNaN, 0)[0][0], 0);
  EXPECT_EQ(at(0, 2)[1][0], 0);
  EXPECT_EQ(at(0, 0)[1][0], 0);
  EXPECT_TRUE(std::isnan(at(-1, 2)[1][0]));
}

// Formulas of a masked value. Where the mask leaves it out, nothing that stands there may reach a gradient.
constexpr const char* kMasked[] = {
    "where(m, exp(x) * w, 0)",
    "where(m, x / w, 1)",
    "where(m, pow(x, w), 1)",
    "exp(where(m, log(x * w), 0))",
    "tanh(where(m, x * x, 2)) * where(m, sqrt(w), 1)",
    "where(m, where(x < w, x / w, w / x), 1)",
    "where(m, row_sum(exp(x * w)), 0)",
    "where(m, x / row_sum(x * w), 0)",
    "where(m, exp(x - row_max(w)) / row_sum(exp(x - row_max(x))), 1)",
    "where(m, log(abs(x)) + max(x, w) * min(x / w, 1), 0)",
    "where(m, erf(x) + sin(w) * x, 0) * 3",
    "row_sum(where(m, x * x / w, 0)) * row_sum(where(m, x % w, 0))",
};

class DerivativeOfMasked : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(DerivativeOfMasked, IsZeroWhateverIsLeftOut) {
  const auto [text, by_row] = GetParam();
  for (const double garbage : {kNaN, kInfinity, -kInfinity, 0.0, -1e308}) {
    FormulaRun run(StrCat("in 0 x: double\nin 1 w: double\nin 2 m: bool\nout ", text),
                   {kElementAccess, kElementAccess, by_row ? kRowAccess : kElementAccess});
    const bool reduces = std::string_view(text).find("row_") != std::string_view::npos;
    if (reduces && !by_row && !std::string_view(text).starts_with("row_sum(where"))
      continue;  // a row is garbage or not
    std::mt19937 random(13);
    run.values = {{}, {}, std::vector<double>(by_row ? 3 : 15, 1)};
    run.Fill(random, 0.5, 2);
    std::vector<std::vector<double>> clean = run.Gradients();
    for (size_t i = 0; i < run.values[0].size(); ++i) {
      const size_t row = i / 5;
      if (by_row ? row != 1 : i % 3 != 0 && row != 1) continue;
      run.values[2][by_row ? row : i] = 0;
      run.values[0][i] = run.values[1][i] = garbage;
      if (by_row) run.gradients[0][i] = kNaN;
    }
    const std::vector<std::vector<double>> gradients = run.Gradients();
    for (int input = 0; input < 2; ++input) {
      for (size_t i = 0; i < 15; ++i) {
        const double got = gradients[input][i];
        if (run.values[2][by_row ? i / 5 : i] == 0) {
          EXPECT_TRUE(got == 0 && !std::signbit(got)) << text << " with " << garbage << " gives " << got;
        } else if (by_row || !reduces) {
          EXPECT_EQ(got, clean[input][i]);
        } else {
          EXPECT_TRUE(std::isfinite(got)) << text << " with " << garbage << " gives " << got;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DerivativeOfMasked, testing::Combine(testing::ValuesIn(kMasked), testing::Bool()));

// The sum of a row of which nothing is selected is 0, and so is what flows back, though a factor behind it is infinite.
TEST(Derivative, OfRowsThatSelectNothingIsZero) {
  FormulaRun run("in 0 x: double\nin 1 s: double\nin 2 m: bool\nout where(m, x * exp(s), 0)",
                 {kElementAccess, kRowAccess, kElementAccess});
  run.values = {{}, {}, std::vector<double>(15)};
  std::mt19937 random(1);
  run.Fill(random);
  run.values[1] = {1000, 1, kNaN};
  run.values[2][6] = 1;
  const std::vector<double> ds = run.Gradients()[1];
  EXPECT_EQ(ds[0], 0);
  EXPECT_DOUBLE_EQ(ds[1], run.gradients[0][6] * run.values[0][6] * std::exp(1.0));
  EXPECT_EQ(ds[2], 0);
}

TEST(Derivative, ChoosesBetweenOppositeBranches) {
  EXPECT_EQ(PrintExpr(GradientOf(Where(x >= 0, x, 0.01 * x))),
            "in 0 x: float\nin 2 dy: float\nout where(0 <= x, dy, dy * 0.01)\n");
  const Expr ended = Expr::Input(3, "ended", DType::kBool);
  EXPECT_EQ(PrintExpr(GradientOf(Where(ended, 0, Where(x >= 0, x, 0.01 * x)))),
            "in 3 ended: bool\nin 0 x: float\nin 2 dy: float\n"
            "out where(ended, 0, where(0 <= x, dy, dy * 0.01))\n");
}

TEST(Derivative, TellsWhatStopsFromWhatIsUnread) {
  const Expr n = Expr::Input(4, "n", DType::kInt32), z = Expr::Input(5, "z", DType::kFloat);
  const auto reach = [&](const Expr& value, const Expr& input) {
    return Differentiate(std::vector<DerivativeOutput>{{.value = value, .gradient = dy}}, {{input}})[0].reach;
  };
  EXPECT_EQ(reach(x * z, y), Reach::kUnread);
  EXPECT_EQ(reach(x * z, z), Reach::kFlows);
  for (const Expr& stopped : {Floor(x), Ceil(x), Round(x), Sign(x), Where(x < 0, z, 0), Where(Equal(x, z), z, 1),
                              Cast(DType::kFloat, Cast(DType::kInt32, x)), Cast(DType::kFloat, x > 0)}) {
    EXPECT_EQ(reach(stopped + z, x), Reach::kStopped) << PrintExpr(stopped);
    EXPECT_EQ(reach(stopped + z, z), Reach::kFlows);
  }
  EXPECT_EQ(reach(Cast(DType::kFloat, n) * x, n), Reach::kStopped);
  const Expr element = Cast(DType::kInt64, x);
  EXPECT_EQ(reach(Uniform(DType::kFloat, 1, 2, 3, 4, element) * y, x), Reach::kStopped);
  EXPECT_EQ(reach(Cast(DType::kFloat, Index(3)) * x, x), Reach::kFlows);
}

// Dropout: the derivative draws the same mask.
TEST(Derivative, OfDropoutIsItsMask) {
  const Expr u = Uniform(DType::kFloat, 1, 2, 3, 4, Index(3));
  EXPECT_TRUE(GradientOf(Where(u < 0.5, x * 2, 0)).Is(Where(u < 0.5, dy * 2, 0)));
}

TEST(Derivative, TakesConstantsAsTheyAre) {
  const Expr largest = RowMax(x);
  const std::vector<DerivativeOutput> outputs = {{.value = x - largest, .gradient = dy}};
  EXPECT_TRUE(Differentiate(outputs, {{x}}, {.constants = {largest}})[0].value.Is(dy));
  EXPECT_FALSE(Differentiate(outputs, {{x}})[0].value.Is(dy));
}

TEST(Derivative, SaysHowItsPartsAreAddedUp) {
  const auto gradient = [](const ExprAccess& access) {
    const std::vector<DerivativeOutput> outputs = {{.value = x * y, .gradient = dy}};
    return Differentiate(outputs, {{y}}, {.accesses = {kElementAccess, access}})[0];
  };
  EXPECT_EQ(gradient(kElementAccess).kind, RegionOutputKind::kElements);
  EXPECT_EQ(gradient(kColumnAccess).kind, RegionOutputKind::kSums);
  EXPECT_TRUE(gradient(kColumnAccess).value.Is(dy * x));
  EXPECT_EQ(gradient(kRowAccess).kind, RegionOutputKind::kRows);
  EXPECT_FALSE(gradient(kRowAccess).adds_rows);
  EXPECT_TRUE(gradient(kRowAccess).value.Is(RowSum(dy * x)));
  EXPECT_EQ(gradient(kScalarAccess).kind, RegionOutputKind::kRows);
  EXPECT_TRUE(gradient(kScalarAccess).adds_rows);
}

// A division for each row in place of one for each element.
TEST(Derivative, DividesSumsOfRows) {
  const std::vector<DerivativeOutput> outputs = {{.value = x / y, .gradient = dy}};
  const InputGradient gradient = Differentiate(outputs, {{y}}, {.accesses = {kElementAccess, kRowAccess}})[0];
  EXPECT_TRUE(gradient.value.Is(-RowSum(dy * (x / y)) / y));
}

// Where rows share the divisor, both gradients are of one quotient.
TEST(Derivative, SharesQuotientsThatAreSummed) {
  const std::vector<DerivativeOutput> outputs = {{.value = x / y, .gradient = dy}};
  const auto gradient = [&](const std::vector<Expr>& inputs, const ExprAccess& access) {
    return Differentiate(outputs, inputs, {.accesses = {kElementAccess, access}}).back().value;
  };
  EXPECT_TRUE(gradient({x, y}, kColumnAccess).Is(-(dy / y * (x / y))));
  EXPECT_TRUE(gradient({y}, kColumnAccess).Is(-(dy * (x / y)) / y));
  EXPECT_TRUE(gradient({x, y}, kElementAccess).Is(-(dy * (x / y)) / y));
}

std::int64_t NumNodes(const std::vector<Expr>& roots) { return std::ssize(ExprNodes(roots)); }

// x doubled n times has 2^n paths.
TEST(Derivative, IsAsLongAsTheFormula) {
  const auto size = [](int levels) {
    Expr value = x;
    for (int i = 0; i < levels; ++i)
      value = Tanh(value * Sigmoid(value) + Where(value < 1, value, value * y) / Exp(value));
    return NumNodes({GradientOf(value)});
  };
  const std::int64_t step = size(20) - size(19);
  EXPECT_LT(step, 60);
  EXPECT_EQ(size(400) - size(200), 200 * step);
}

TEST(Derivative, OfDeepFormulasNeedsNoStack) {
  Expr value = x;
  for (int i = 0; i < 100'000; ++i) value = Sin(value);
  EXPECT_GE(NumNodes({GradientOf(value)}), 100'000);
}

std::string MessageOf(const DerivativeOutput& output, const Expr& input) {
  return ErrorOf([&] {
    Differentiate({&output, 1}, {{input}}, {.accesses = {kElementAccess, kRowAccess, kElementAccess}});
  });
}

TEST(Derivative, RefusesWhatDoesNotFit) {
  const Expr d = Expr::Input(6, "d", DType::kDouble), n = Expr::Input(4, "n", DType::kInt32);
  EXPECT_EQ(MessageOf({.value = x * y, .gradient = d}, x),
            "type mismatch: d is double and stands for x * y, which is float");
  EXPECT_EQ(MessageOf({.value = x * y, .gradient = dy, .stored = d}, x),
            "type mismatch: d is double and stands for x * y, which is float");
  EXPECT_EQ(MessageOf({.value = n * n, .gradient = n}, n),
            "type mismatch: gradient of n * n, which is int32, must be float or double");
  EXPECT_EQ(MessageOf({.value = x * y, .gradient = dy}, x * y),
            "invalid argument: gradient by x * y, which is no input");
  EXPECT_EQ(MessageOf({.value = x * y, .gradient = dy}, Expr()),
            "invalid argument: gradient by nothing, which is no input");
  EXPECT_EQ(MessageOf({.value = Expr(), .gradient = dy}, x),
            "invalid argument: an output to differentiate is undefined");
  EXPECT_EQ(MessageOf({.value = x * y, .gradient = y, .is_row = true}, x),
            "invalid argument: x * y varies along the row");
  EXPECT_EQ(MessageOf({.value = RowSum(x), .gradient = dy, .is_row = true}, x),
            "invalid argument: dy varies along the row");
}

// Random formulas at random points. Near a kink or a pole differences say nothing: there they depend on their step. Of
// a tie that stays, as in max(abs(t), t), they know nothing either: the seed is one that meets none.
TEST(Derivative, OfRandomFormulasIsACentralDifference) {
  std::mt19937 random(18);
  int compared = 0, formulas = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Expr> leaves;
    for (int i = 0; i < 4; ++i) leaves.push_back(Expr::Input(i, StrCat("x", i), DType::kDouble));
    const std::vector<RandomExprStep> steps = RandomExprSteps(leaves, {.steps = 25, .reductions = true}, random);
    const Expr root = steps.back().result;
    if (root.dtype() != DType::kDouble) continue;
    FormulaRun run({root}, {kElementAccess, kRowAccess, kColumnAccess, kScalarAccess});
    run.num_rows = 2;
    run.num_columns = 3;
    run.stores_outputs = round % 2 == 0;
    run.Fill(random, -1.5, 1.5);
    const std::vector<std::vector<double>> gradients = run.Gradients();
    ++formulas;
    for (size_t i = 0; i < gradients.size(); ++i) {
      for (size_t k = 0; k < gradients[i].size(); ++k) {
        const double coarse = run.Difference(i, k, 2e-5), fine = run.Difference(i, k, 1e-5);
        const double finest = run.Difference(i, k, 3e-6);
        const double tolerance = 1e-6 * (1 + std::fabs(fine));
        if (!(std::fabs(coarse - fine) < tolerance / 4 && std::fabs(finest - fine) < tolerance / 4)) continue;
        if (std::fabs(run.Loss()) > 1e3) continue;  // whose rounding hides a difference
        ++compared;
        ASSERT_NEAR(gradients[i][k], fine, tolerance)
            << PrintExpr(root) << "by x" << i << " element " << k << " = " << run.values[i][k];
      }
    }
  }
  EXPECT_GT(formulas, 50);
  EXPECT_GT(compared, 200);
}

// Where the formula rounds once, the derivative does.
TEST(Derivative, RoundsOnceAsTheFormulaDoes) {
  const Expr t = Tanh(x), s = Sigmoid(x);
  EXPECT_TRUE(GradientOf(t).Is(dy * (1 - t * t)));
  EXPECT_TRUE(GradientOf(s).Is(dy * s * (1 - s)));
  const Expr t_slope = MulAdd(-t, t, 1), s_slope = MulAdd(-s, s, s);
  EXPECT_TRUE(GradientOf(MulAdd(t, y, y)).Is(dy * y * t_slope));
  EXPECT_TRUE(GradientOf(MulAdd(s, y, y)).Is(dy * y * s_slope));
  EXPECT_TRUE(GradientOf(MulAdd(t, y, x)).Is(MulAdd(dy * y, t_slope, dy)));
}

TEST(Derivative, AddsFactorsOfWhatFlowsTogether) {
  const Expr t = Tanh(y);
  EXPECT_TRUE(GradientOf(x * y + x * t).Is(dy * (t + y)));
  EXPECT_TRUE(GradientOf(x * y - x * t).Is(dy * (y - t)));
  EXPECT_TRUE(GradientOf(x * t - x * y).Is(dy * (t - y)));
  EXPECT_TRUE(GradientOf(-(x * y) - x * t).Is(-dy * (t + y)));
  const Expr s = Sigmoid(x);
  EXPECT_TRUE(GradientOf(x * s).Is(dy * s * (1 + x * (1 - s))));
}

// A product that something else needs is not taken apart.
TEST(Derivative, KeepsProductsThatAreNeeded) {
  const Expr u = Tanh(y + 3 * x), value = u + x * Exp(y), slope = 1 - u * u;
  const DerivativeOutput output[] = {{.value = value, .gradient = dy}};
  EXPECT_TRUE(Differentiate(output, {{x}})[0].value.Is(dy * (Exp(y) + slope * 3)));
  EXPECT_TRUE(Differentiate(output, {{x, y}})[0].value.Is(dy * Exp(y) + dy * slope * 3));
}

// What is stored of a selection is what was selected, for those who read it where it was.
TEST(Derivative, ReadsStoredSelections) {
  const Expr stored = Expr::Input(3, "stored", DType::kFloat), dz = Expr::Input(4, "dz", DType::kFloat);
  const Expr selects = y > 0, c = x * 3, t = Tanh(stored);
  const auto gradient = [&](const Expr& reader) {
    const DerivativeOutput outputs[] = {{.value = Where(selects, c, y), .gradient = dy, .stored = stored},
                                        {.value = reader, .gradient = dz}};
    return Differentiate(outputs, {{x}})[0].value;
  };
  EXPECT_TRUE(gradient(Where(selects, Tanh(c), 0)).Is(Where(selects, (dz * (1 - t * t) + dy) * 3, 0)));
  const Expr u = Tanh(c);
  EXPECT_TRUE(gradient(u).Is((dz * (1 - u * u) + Where(selects, dy, 0)) * 3));
  EXPECT_TRUE(gradient(Where(selects, 0, u)).Is(Where(selects, dy, dz * (1 - u * u)) * 3));
}

// What is stored of -u stands for u.
TEST(Derivative, ReadsStoredNegations) {
  const Expr greatest = RowMax(-x);
  const DerivativeOutput output[] = {{.value = -greatest, .gradient = RowSum(dy), .stored = RowMax(y), .is_row = true}};
  const Expr dx = Differentiate(output, {{x}})[0].value;
  EXPECT_TRUE(dx.Is(Where(Equal(-x, -RowMax(y)), RowSum(dy), 0))) << ExprSummary(dx);
}

}  // namespace
}  // namespace stepnet
