#include <cmath>

#include "op_test.h"

namespace stepnet {
namespace {

void ExpectEachIs(OpTest op, double (*fn)(double)) {
  op.Input("x", {8}, {-2.5, -1.5, -0.25, 0, 0.5, 1.5, 2.5, 7.75})
      .Follows([fn](const std::vector<std::vector<double>>& in) {
        std::vector<double> y = in[0];
        for (double& v : y) v = fn(v);
        return y;
      });
}

TEST(Floor, FollowsTheCLibrary) { ExpectEachIs(OpTest("Floor"), std::floor); }
TEST(Ceil, FollowsTheCLibrary) { ExpectEachIs(OpTest("Ceil"), std::ceil); }
TEST(Round, FollowsTheCLibrary) { ExpectEachIs(OpTest("Round"), std::nearbyint); }

TEST(Mod, FollowsTheCLibrary) {
  ExpectEachIs(OpTest("Mod").Arg("divisor", 2), [](double x) { return std::fmod(x, 2); });
}

TEST(Mod, MayBeAtLeastZero) {
  const Tensor x = Tensor::Of<std::int64_t>({5}, {-7, -3, 0, 4, 8});
  OpTest("Mod").Arg("divisor", 3).Input("x", x).GivesExactly(Tensor::Of<std::int64_t>({5}, {-1, 0, 0, 1, 2}));
  OpTest("Mod")
      .Arg("divisor", 3)
      .Arg("sign_follow_divisor", 1)
      .Input("x", x)
      .GivesExactly(Tensor::Of<std::int64_t>({5}, {2, 0, 0, 1, 2}));
}

}  // namespace
}  // namespace stepnet
