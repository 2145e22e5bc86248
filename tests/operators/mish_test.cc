#include <cmath>

#include "op_test.h"

namespace stepnet {
namespace {

TEST(Mish, FollowsTheCLibrary) {
  OpTest("Mish").RandomIn("x", {5, 7}, /*seed=*/1, -9, 9).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    for (double& v : y) v *= std::tanh(std::log1p(std::exp(v)));
    return y;
  });
}

TEST(Mish, DoesNotOverflow) { OpTest("Mish").Input("x", {3}, {1e4, -1e4, 0}).Gives({3}, {1e4, 0, 0}); }

TEST(Mish, GradientMatchesDifferences) { OpTest("Mish").RandomIn("x", {3, 5}, /*seed=*/2, -3, 3).GradientMatches(); }

TEST(Silu, FollowsTheCLibrary) {
  OpTest("Silu").RandomIn("x", {5, 7}, /*seed=*/3, -9, 9).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    for (double& v : y) v /= 1 + std::exp(-v);
    return y;
  });
}

TEST(Silu, GradientMatchesDifferences) { OpTest("Silu").RandomIn("x", {3, 5}, /*seed=*/4, -3, 3).GradientMatches(); }

}  // namespace
}  // namespace stepnet
