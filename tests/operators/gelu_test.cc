#include <cmath>

#include "op_test.h"

namespace stepnet {
namespace {

TEST(Gelu, FollowsTheCLibrary) {
  OpTest("Gelu").RandomIn("x", {5, 7}, /*seed=*/1, -6, 6).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    for (double& v : y) v = v * (1 + std::erf(v / std::sqrt(2))) / 2;
    return y;
  });
}

TEST(Gelu, GradientMatchesDifferences) { OpTest("Gelu").RandomIn("x", {3, 5}, /*seed=*/2, -3, 3).GradientMatches(); }

TEST(Erf, FollowsTheCLibrary) {
  OpTest("Erf").RandomIn("x", {5, 7}, /*seed=*/3, -4, 4).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    for (double& v : y) v = std::erf(v);
    return y;
  });
}

TEST(Erf, GradientMatchesDifferences) { OpTest("Erf").RandomIn("x", {3, 5}, /*seed=*/4, -2, 2).GradientMatches(); }

}  // namespace
}  // namespace stepnet
