#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

std::vector<double> Tanh(const Values& in) {
  std::vector<double> y;
  for (const double x : in[0]) y.push_back(std::tanh(x));
  return y;
}

TEST(Tanh, FollowsItsFormula) {
  OpTest("Tanh").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Tanh, 0, 1e-6);
  OpTest("Tanh").RandomIn("x", {3, 41}, 1, -9, 9).InPlace(0, 0).Follows(Tanh, 0, 1e-6);
}

TEST(Tanh, GradientMatchesDifferences) {
  OpTest("Tanh").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Tanh").RandomIn("x", {3, 5}, 7, -3, 3).InPlace(0, 0).GradientMatches();
}

TEST(Tanh, GradientMayOverwriteItsInput) {
  const OpTest apart = OpTest("TanhGradient").Random("y", {37}, 1).Random("dy", {37}, 2);
  const OpTest in_place = OpTest("TanhGradient").Random("y", {37}, 1).Random("dy", {37}, 2).InPlace(1, 0);
  EXPECT_EQ(ToDoubles(in_place.Run()[0]), ToDoubles(apart.Run()[0]));
}

TEST(Tanh, AcceptsNoElements) { OpTest("Tanh").Input("x", {0, 5}, {}).Gives({0, 5}, {}); }

TEST(Tanh, SaturatesAndKeepsNaN) {
  OpTest("Tanh").Input("x", {3}, {-1e4, 1e4, 0}).Gives({3}, {-1, 1, 0});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("Tanh").Input("x", {1}, {nan}).Gives({1}, {nan});
}

TEST(Tanh, RefusesBadInput) {
  ExpectError([] { OpTest("Tanh").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: Tanh works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = Tanh(x)` with x int32 [1]\n"
              "  in net \"test\"");
  ExpectError([] { OpTest("TanhGradient").Random("y", {2}, 1).Random("dy", {3}, 2).Run(); },
              "…TanhGradient needs inputs of one shape; y is float [2] and dy is float [3]\n");
}

}  // namespace
}  // namespace stepnet
