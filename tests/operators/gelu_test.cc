#include <cmath>
#include <numbers>

#include "each.h"
#include "op_test.h"

namespace stepnet {
namespace {

double GeluOf(double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }

TEST(Gelu, FollowsItsEquation) {
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 41}, 1, -4, 4).InPlace(0, 0).Follows(Each<GeluOf>, 0, 2e-6);
  OpTest("Gelu").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Gelu").Input("x", {0, 5}, {}).Gives({0, 5}, {});
}

TEST(Gelu, RefusesBadInput) {
  ExpectError([] { OpTest("Gelu").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: Gelu works on float and double; x is int32 [1]\n"
              "  at op 0 `output0 = Gelu(x)` with x int32 [1]\n"
              "  in net \"test\"");
}

}  // namespace
}  // namespace stepnet
