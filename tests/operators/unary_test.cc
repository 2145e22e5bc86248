// The operators of one input that work element by element: each against its formula, its gradient against differences.
#include <cmath>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

struct Case {
  std::string type;
  double (*formula)(double);
  double low;
  double high;
  std::vector<double> kinks = {};
  std::vector<std::pair<std::string, float>> arguments = {};
  bool gradient_reads_input = false;  // so that it works in place forward alone
};

double Elu(double x, double alpha, double scale) { return scale * (x > 0 ? x : alpha * std::expm1(x)); }

const std::vector<Case> kCases = {
    {"Abs", [](double x) { return std::abs(x); }, -3, 3, {0}, {}, true},
    {"Negative", [](double x) { return -x; }, -3, 3},
    {"Sqr", [](double x) { return x * x; }, -3, 3, {}, {}, true},
    {"Sqrt", [](double x) { return std::sqrt(x); }, 0.1, 3},
    {"Rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 3},
    {"Reciprocal", [](double x) { return 1 / x; }, 0.3, 3},
    {"Pow", [](double) { return 1.0; }, -3, 3, {}, {{"exponent", 0.0f}}, true},
    {"Pow", [](double x) { return x; }, -3, 3, {}, {{"exponent", 1.0f}}, true},
    {"Pow", [](double x) { return x * x; }, -3, 3, {}, {{"exponent", 2.0f}}, true},
    {"Pow", [](double x) { return x * x * x; }, -3, 3, {}, {{"exponent", 3.0f}}, true},
    {"Pow", [](double x) { return 1 / x; }, 0.3, 3, {}, {{"exponent", -1.0f}}, true},
    {"Pow", [](double x) { return std::pow(x, 1.75); }, 0.3, 3, {}, {{"exponent", 1.75f}}, true},
    {"Exp", [](double x) { return std::exp(x); }, -3, 3},
    {"Log", [](double x) { return std::log(x); }, 0.1, 3, {}, {}, true},
    {"Sin", [](double x) { return std::sin(x); }, -4, 4, {}, {}, true},
    {"Cos", [](double x) { return std::cos(x); }, -4, 4, {}, {}, true},
    {"Atan", [](double x) { return std::atan(x); }, -4, 4, {}, {}, true},
    {"Asin", [](double x) { return std::asin(x); }, -0.9, 0.9, {}, {}, true},
    {"Acos", [](double x) { return std::acos(x); }, -0.9, 0.9, {}, {}, true},
    {"Sinh", [](double x) { return std::sinh(x); }, -3, 3, {}, {}, true},
    {"Cosh", [](double x) { return std::cosh(x); }, -3, 3, {}, {}, true},
    {"Asinh", [](double x) { return std::asinh(x); }, -3, 3, {}, {}, true},
    {"Acosh", [](double x) { return std::acosh(x); }, 1.1, 4, {}, {}, true},
    {"Atanh", [](double x) { return std::atanh(x); }, -0.9, 0.9, {}, {}, true},
    {"Scale", [](double x) { return x; }, -3, 3},
    {"Scale", [](double x) { return -2.5 * x; }, -3, 3, {}, {{"scale", -2.5f}}},
    {"Clip", [](double x) { return x; }, -3, 3},
    {"Clip",
     [](double x) { return std::min(std::max(x, -0.5), 1.5); },
     -3,
     3,
     {-0.5, 1.5},
     {{"min", -0.5f}, {"max", 1.5f}}},
    {"Clip", [](double x) { return std::max(x, 0.25); }, -3, 3, {0.25}, {{"min", 0.25f}}},
    {"Elu", [](double x) { return Elu(x, 1, 1); }, -3, 3, {0}},
    {"Elu", [](double x) { return Elu(x, 0.5, 1); }, -3, 3, {0}, {{"alpha", 0.5f}}},
    {"Selu", [](double x) { return Elu(x, 1.6732632423543772, 1.0507009873554804); }, -3, 3, {0}},
    {"Selu", [](double x) { return Elu(x, 0.5, 2); }, -3, 3, {0}, {{"alpha", 0.5f}, {"scale", 2.0f}}},
    {"LeakyRelu", [](double x) { return x > 0 ? x : 0.01f * x; }, -3, 3, {0}},
    {"LeakyRelu", [](double x) { return x > 0 ? x : 0.25 * x; }, -3, 3, {0}, {{"alpha", 0.25f}}},
    {"Softplus", [](double x) { return std::log1p(std::exp(x)); }, -6, 6},
    {"Softsign", [](double x) { return x / (1 + std::abs(x)); }, -3, 3, {0}, {}, true},
    {"HardSigmoid", [](double x) { return std::min(std::max(0.2f * x + 0.5, 0.0), 1.0); }, -4, 4, {-2.5, 2.5}},
    {"HardSigmoid",
     [](double x) { return std::min(std::max(0.5 * x + 0.25, 0.0), 1.0); },
     -4,
     4,
     {-0.5, 1.5},
     {{"alpha", 0.5f}, {"beta", 0.25f}}},
    {"Swish", [](double x) { return x / (1 + std::exp(-x)); }, -6, 6},
};

OpTest TestOf(const Case& c) {
  OpTest test(c.type);
  for (const auto& [name, value] : c.arguments) test.Arg(name, value);
  return test;
}

// Values of [low, high) away from the kinks, where differences mislead.
std::vector<double> Values(const Case& c, std::int64_t n) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) {
    double value =
        static_cast<float>(c.low + (c.high - c.low) * (static_cast<double>(i) + 0.5) / static_cast<double>(n));
    for (const double kink : c.kinks) {
      if (std::abs(value - kink) < 0.01) value = kink + 0.01;
    }
    values.push_back(static_cast<float>(value));
  }
  return values;
}

TEST(Unary, FollowsItsFormula) {
  for (const Case& c : kCases) {
    for (const std::int64_t n : {1, 7, 600}) {
      TestOf(c)
          .Input("x", {n}, Values(c, n))
          .Follows(
              [&](const auto& in) {
                std::vector<double> result;
                for (const double x : in[0]) result.push_back(c.formula(x));
                return result;
              },
              0, 2e-6);
    }
  }
}

TEST(Unary, GradientMatchesDifferences) {
  for (const Case& c : kCases) TestOf(c).Input("x", {3, 13}, Values(c, 39)).GradientMatches();
}

TEST(Unary, AcceptsNoElements) {
  for (const Case& c : kCases) {
    TestOf(c).Input("x", {0, 2}, {}).Gives({0, 2}, {});
    TestOf(c).Input("x", {0, 2}, {}).GradientMatches();
  }
}

TEST(Unary, WorksInPlace) {
  for (const Case& c : kCases) {
    if (c.type == "Swish") continue;
    const std::vector<double> x = Values(c, 37);
    std::vector<double> expected;
    for (const double value : x) expected.push_back(c.formula(value));
    TestOf(c).Input("x", {37}, x).InPlace(0, 0).Gives({37}, expected);
    if (!c.gradient_reads_input) continue;
    ExpectError(
        [&] { TestOf(c).Input("x", {37}, x).InPlace(0, 0).GradientMatches(); },
        StrCat("invalid net: the gradient of ", c.type, " needs its input \"x\", and the operator overwrites it"));
  }
}

TEST(Unary, KeepsNaN) {
  for (const Case& c : kCases) {
    if (c.type == "Pow" && c.arguments[0].second == 0) continue;
    EXPECT_TRUE(std::isnan(TestOf(c).Input("x", {1}, {std::nan("")}).Run()[0].data<float>()[0])) << c.type;
  }
}

TEST(Unary, RefusesIntegers) {
  for (const Case& c : kCases) {
    if (c.type == "Negative") continue;
    ExpectError([&] { TestOf(c).Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
                StrCat("type mismatch: ", c.type,
                       " works on float, double, float16 and bfloat16; x is int32 [1]\n  at op 0 `output0 = ", c.type,
                       "(x)` with x int32 [1]\n  in net \"test\""));
  }
}

TEST(Unary, DoesNotOverflow) {
  OpTest("Softplus").Input("x", {4}, {-200, -50, 50, 2000}).Gives({4}, {0, std::exp(-50), 50, 2000}, 0, 1e-25);
  OpTest("Elu").Input("x", {3}, {-2000, 1e-4, 2000}).Gives({3}, {-1, 1e-4, 2000});
  OpTest("Swish").Input("x", {2}, {-2000, 2000}).Gives({2}, {0, 2000});
}

TEST(Elu, KeepsTheDigitsOfSmallValues) {
  const float y = OpTest("Elu").Input("x", {1}, {-1e-6}).Run()[0].data<float>()[0];
  EXPECT_NEAR(y / -1e-6, 1, 1e-5);
}

TEST(Negative, WorksOnIntegers) {
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
  OpTest("Negative")
      .Input("x", Tensor::Of<std::int32_t>({2}, {5, kLowest}))
      .GivesExactly(Tensor::Of<std::int32_t>({2}, {-5, kLowest}));
  OpTest("Negative").Input("x", Tensor::Of<std::int64_t>({1}, {7})).GivesExactly(Tensor::Of<std::int64_t>({1}, {-7}));
  ExpectError([] { OpTest("Negative").Input("x", Tensor::Of<bool>({1}, {true})).Run(); },
              "…type mismatch: Negative works on float, double, float16, bfloat16, int32 and int64; x is bool [1]\n");
}

// Nothing lies between the bounds, so that no element of x passes.
TEST(Clip, ToOneNumberHasNoGradient) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bound : {0.0f, -0.0f, 3.0f, 1e30f, -1e30f, infinity, -infinity}) {
    const auto test = [&](const std::string& type) { return OpTest(type).Arg("min", bound).Arg("max", bound); };
    test("ClipGradient").Input("y", {3}, {bound, bound, bound}).Input("dy", {3}, {1, 2, 3}).Gives({3}, {0, 0, 0});
    if (std::isfinite(bound) && std::abs(bound) < 10) test("Clip").Random("x", {3}, 1).GradientMatches();
  }
  const std::vector<double> big = {3e38, 1, 2e38};
  OpTest("ClipGradient").Arg("min", 3e38f).Input("y", {3}, big).Input("dy", {3}, {1, 2, 3}).Gives({3}, {0, 0, 0});
}

TEST(Clip, RefusesAnEmptyRange) {
  ExpectError([] { OpTest("Clip").Arg("min", 2.0f).Arg("max", 1.0f).Input("x", {1}, {0}).Run(); },
              "invalid net: Clip: min is 2, must not exceed max, which is 1\n"
              "  at op 0 `output0 = Clip(x)`\n"
              "  in net \"test\"");
}

TEST(Elu, RefusesNegativeAlpha) {
  ExpectError([] { OpTest("Elu").Arg("alpha", -1.0f).Input("x", {1}, {0}).Run(); },
              "…Elu: alpha is -1, must be at least 0\n");
}

TEST(Pow, NeedsItsExponent) {
  ExpectError(
      [] { OpTest("Pow").Input("x", {1}, {1}).Run(); },
      "…Pow needs the argument \"exponent\": the power that x is raised to; Power takes exponents as an input\n");
}

}  // namespace
}  // namespace stepnet
