#include <cmath>
#include <limits>

#include "each.h"
#include "op_test.h"

namespace stepnet {
namespace {

double ErfOf(double x) { return std::erf(x); }

TEST(Erf, FollowsItsEquation) {
  OpTest("Erf").RandomIn("x", {3, 41}, 1, -4, 4).Follows(Each<ErfOf>, 0, 1e-6);
  OpTest("Erf").RandomIn("x", {3, 5}, 7, -2, 2).GradientMatches();
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("Erf").Input("x", {4}, {-inf, inf, nan, 0}).Gives({4}, {-1, 1, nan, 0});
}

TEST(Erf, TakesNoElementsAndRefusesBadInput) {
  OpTest("Erf").Input("x", {0, 5}, {}).Gives({0, 5}, {});
  OpTest("ErfGradient").Input("x", {0, 5}, {}).Input("dy", {0, 5}, {}).Gives({0, 5}, {});
  ExpectError([] { OpTest("Erf").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…Erf works on float, double, float16 and bfloat16; x is int32 [1]");
}

}  // namespace
}  // namespace stepnet
