#include <cmath>

#include "each.h"
#include "op_test.h"

namespace stepnet {
namespace {

double SiluOf(double x) { return x / (1 + std::exp(-x)); }

TEST(Silu, FollowsItsEquation) {
  OpTest("Silu").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Each<SiluOf>, 0, 2e-6);
  OpTest("Silu").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
}

TEST(Silu, TakesNoElementsAndRefusesBadInput) {
  OpTest("Silu").Input("x", {0, 5}, {}).Gives({0, 5}, {});
  OpTest("SiluGradient").Input("x", {0, 5}, {}).Input("dy", {0, 5}, {}).Gives({0, 5}, {});
  ExpectError([] { OpTest("Silu").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…Silu works on float, double, float16 and bfloat16; x is int32 [1]");
}

TEST(SwishGradient, IsOneOrNothingWhereXIsLarge) {
  OpTest("SwishGradient")
      .Input("x", {3}, {-1e8, 40, 1e8})
      .Input("y", {3}, {-0.0, 40, 1e8})
      .Input("dy", {3}, {2, 2, 2})
      .Gives({3}, {0, 2, 2});
}

}  // namespace
}  // namespace stepnet
