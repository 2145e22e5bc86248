#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

std::vector<double> Sigmoid(const Values& in) {
  std::vector<double> y;
  for (const double x : in[0]) y.push_back(1 / (1 + std::exp(-x)));
  return y;
}

TEST(Sigmoid, FollowsItsFormula) {
  OpTest("Sigmoid").RandomIn("x", {3, 41}, 1, -9, 9).Follows(Sigmoid, 0, 1e-6);
  OpTest("Sigmoid").RandomIn("x", {3, 41}, 1, -9, 9).InPlace(0, 0).Follows(Sigmoid, 0, 1e-6);
}

TEST(Sigmoid, GradientMatchesDifferences) {
  OpTest("Sigmoid").RandomIn("x", {3, 5}, 7, -3, 3).GradientMatches();
  OpTest("Sigmoid").RandomIn("x", {3, 5}, 7, -3, 3).InPlace(0, 0).GradientMatches();
}

TEST(Sigmoid, GradientMayOverwriteItsInput) {
  const OpTest apart = OpTest("SigmoidGradient").Random("y", {37}, 1).Random("dy", {37}, 2);
  const OpTest in_place = OpTest("SigmoidGradient").Random("y", {37}, 1).Random("dy", {37}, 2).InPlace(1, 0);
  EXPECT_EQ(ToDoubles(in_place.Run()[0]), ToDoubles(apart.Run()[0]));
}

TEST(Sigmoid, AcceptsNoElements) { OpTest("Sigmoid").Input("x", {0, 5}, {}).Gives({0, 5}, {}); }

TEST(Sigmoid, SaturatesAndKeepsNaN) {
  OpTest("Sigmoid").Input("x", {3}, {-1e4, 1e4, 0}).Gives({3}, {0, 1, 0.5});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  OpTest("Sigmoid").Input("x", {1}, {nan}).Gives({1}, {nan});
}

TEST(Sigmoid, RefusesBadInput) {
  ExpectError([] { OpTest("Sigmoid").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: Sigmoid works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = Sigmoid(x)` with x int32 [1]\n"
              "  in net \"test\"");
  ExpectError([] { OpTest("SigmoidGradient").Random("y", {2}, 1).Random("dy", {3}, 2).Run(); },
              "…SigmoidGradient needs inputs of one shape; y is float [2] and dy is float [3]\n");
}

}  // namespace
}  // namespace stepnet
