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

}  // namespace
}  // namespace stepnet
