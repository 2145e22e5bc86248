#include <cmath>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

OpTest Clip(float max_norm) {
  return OpTest("ClipByGlobalNorm", 3).Arg("max_norm", max_norm).Input("a", {2, 1}, {2, -4}).Input("b", {1}, {4});
}

TEST(ClipByGlobalNorm, MakesLongGradientsShorterTogether) {
  for (const bool in_place : {false, true}) {
    OpTest test = Clip(3);  // of a norm of 6
    if (in_place) test.InPlace(0, 0).InPlace(1, 1);
    test.Gives({2, 1}, {1, -2}, 0);
    test.Gives({1}, {2}, 1);
    test.Gives({1}, {6}, 2);
  }
}

TEST(ClipByGlobalNorm, LeavesShortGradientsAsTheyAre) {
  for (const bool in_place : {false, true}) {
    OpTest test = Clip(7);
    if (in_place) test.InPlace(0, 0).InPlace(1, 1);
    test.Gives({2, 1}, {2, -4}, 0, 0);
    test.Gives({1}, {4}, 1, 0);
    test.Gives({1}, {6}, 2);
  }
}

TEST(ClipByGlobalNorm, FollowsItsFormula) {
  for (const std::int64_t n : {1, 2, 5, 33, 4097}) {
    const OpTest test = OpTest("ClipByGlobalNorm", 3).Arg("max_norm", 0.25f).Random("a", {n}, 1).Random("b", {3, n}, 2);
    const auto norm = [](const std::vector<std::vector<double>>& in) {
      double squares = 0;
      for (const std::vector<double>& gradient : in) {
        for (const double g : gradient) squares += g * g;
      }
      return std::sqrt(squares);
    };
    for (int i = 0; i < 2; ++i) {
      test.Follows(
          [&](std::vector<std::vector<double>> in) {
            const double scale = 0.25 / (norm(in) + 1e-6);
            for (double& g : in[i]) g *= scale;
            return in[i];
          },
          i, 1e-6);
    }
    test.Follows([&](const auto& in) { return std::vector<double>{norm(in)}; }, 2, 1e-6);
  }
}

// The squares of these overflow a float.
TEST(ClipByGlobalNorm, AddsInDouble) {
  OpTest("ClipByGlobalNorm", 2).Arg("max_norm", 1.0f).Input("g", {2}, {3e30, 4e30}).Gives({2}, {0.6, 0.8});
}

TEST(ClipByGlobalNorm, GivesZerosWhereTheNormIsNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const bool in_place : {false, true}) {
      OpTest test = OpTest("ClipByGlobalNorm", 3).Arg("max_norm", 1.0f).Input("a", {2}, {1, bad}).Input("b", {1}, {2});
      if (in_place) test.InPlace(0, 0).InPlace(1, 1);
      test.Gives({2}, {0, 0}, 0);
      test.Gives({1}, {0}, 1);
      test.Gives({1}, {bad}, 2);
    }
  }
}

TEST(ClipByGlobalNorm, AcceptsNoElements) {
  OpTest test = OpTest("ClipByGlobalNorm", 3).Arg("max_norm", 1.0f).Input("a", {0, 2}, {}).Input("b", {1}, {0});
  test.Gives({0, 2}, {}, 0);
  test.Gives({1}, {0}, 1);
  test.Gives({1}, {0}, 2);
}

TEST(ClipByGlobalNorm, RefusesBadInput) {
  ExpectError([] { OpTest("ClipByGlobalNorm", 2).Arg("max_norm", 1.0f).Random("a", {1}, 1).Random("b", {1}, 1).Run(); },
              "…ClipByGlobalNorm has 2 inputs and 2 outputs, needs one output more than inputs");
  ExpectError([] { OpTest("ClipByGlobalNorm", 2).Random("a", {1}, 1).Run(); },
              "…ClipByGlobalNorm needs the argument \"max_norm\"");
  ExpectError([] { OpTest("ClipByGlobalNorm", 2).Arg("max_norm", -1.0f).Random("a", {1}, 1).Run(); },
              "…max_norm is -1, must be at least 0");
  ExpectError(
      [] { OpTest("ClipByGlobalNorm", 2).Arg("max_norm", 1.0f).Input("a", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
      "…ClipByGlobalNorm works on float and double; a is int32 [1]");
}

}  // namespace
}  // namespace stepnet
