#include <cmath>

#include "each.h"
#include "op_test.h"

namespace stepnet {
namespace {

double MishOf(double x) { return x * std::tanh(std::log1p(std::exp(x))); }

TEST(Mish, FollowsItsEquation) {
  OpTest("Mish").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Each<MishOf>, 0, 2e-6);
  OpTest("Mish").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Mish").Input("x", {2}, {1000, -1000}).Gives({2}, {1000, 0});  // without overflow
}

TEST(Mish, TakesNoElementsAndRefusesBadInput) {
  OpTest("Mish").Input("x", {0, 5}, {}).Gives({0, 5}, {});
  OpTest("MishGradient").Input("x", {0, 5}, {}).Input("dy", {0, 5}, {}).Gives({0, 5}, {});
  ExpectError([] { OpTest("Mish").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…Mish works on float, double, float16 and bfloat16; x is int32 [1]");
}

}  // namespace
}  // namespace stepnet
