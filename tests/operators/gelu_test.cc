// Gelu, Erf, Mish and Silu, which are formulas, against the C library in double.
#include <cmath>
#include <limits>
#include <numbers>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

template <double (*kFunction)(double)>
std::vector<double> Each(const Values& in) {
  std::vector<double> y;
  for (const double x : in[0]) y.push_back(kFunction(x));
  return y;
}

double GeluOf(double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double ErfOf(double x) { return std::erf(x); }
double MishOf(double x) { return x * std::tanh(std::log1p(std::exp(x))); }
double SiluOf(double x) { return x / (1 + std::exp(-x)); }

TEST(Gelu, FollowsItsEquation) {
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).InPlace(0, 0).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Gelu").Input("x", {0, 5}, {}).Gives({0, 5}, {});
}

TEST(Erf, FollowsItsEquation) {
  OpTest("Erf").RandomIn("x", {3, 41}, 1, -4, 4).Follows(Each<ErfOf>, 0, 1e-6);
  OpTest("Erf").RandomIn("x", {3, 5}, 7, -2, 2).GradientMatches();
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("Erf").Input("x", {4}, {-inf, inf, nan, 0}).Gives({4}, {-1, 1, nan, 0});
}

TEST(Mish, FollowsItsEquation) {
  OpTest("Mish").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Each<MishOf>, 0, 2e-6);
  OpTest("Mish").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Mish").Input("x", {2}, {1000, -1000}).Gives({2}, {1000, 0});  // without overflow
}

TEST(Silu, FollowsItsEquation) {
  OpTest("Silu").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Each<SiluOf>, 0, 2e-6);
  OpTest("Silu").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
}

TEST(Gelu, RefusesBadInput) {
  ExpectError([] { OpTest("Gelu").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: Gelu works on float and double; x is int32 [1]\n"
              "  at op 0 `output0 = Gelu(x)` with x int32 [1]\n"
              "  in net \"test\"");
}

}  // namespace
}  // namespace stepnet
