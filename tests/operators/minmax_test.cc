#include <algorithm>
#include <cmath>

#include "op_test.h"

namespace stepnet {
namespace {

TEST(MinMax, FollowsItsFormula) {
  for (const bool greatest : {false, true}) {
    OpTest(greatest ? "Max" : "Min")
        .Random("x", {5, 9}, 1)
        .Random("y", {5, 9}, 2)
        .Random("z", {5, 9}, 3)
        .Follows([&](const auto& in) {
          std::vector<double> best = in[0];
          for (size_t i = 0; i < best.size(); ++i) {
            for (const auto& x : in) best[i] = greatest ? std::max(best[i], x[i]) : std::min(best[i], x[i]);
          }
          return best;
        });
  }
}

TEST(MinMax, KeepsNaN) {
  const double nan = std::nan("");
  for (const char* type : {"Max", "Min"}) {
    OpTest(type).Input("x", {2}, {nan, 1}).Input("y", {2}, {1, nan}).Gives({2}, {nan, nan});
  }
}

TEST(MinMax, OfOneInputIsACopy) {
  OpTest("Max").Input("x", {2}, {1, 2}).Gives({2}, {1, 2});
  OpTest("Min").Input("x", {2}, {1, 2}).InPlace(0, 0).Gives({2}, {1, 2});
}

TEST(MinMax, WorksInPlace) {
  OpTest("Max").Input("x", {2}, {1, 5}).Input("y", {2}, {3, 4}).InPlace(0, 0).Gives({2}, {3, 5});
  ExpectError(
      [] {
        OpTest("Max").Input("x", {2}, {1, 5}).Input("y", {2}, {3, 4}).InPlace(0, 0).GradientMatches();
      },
      "invalid net: the gradient of Max needs its input \"x\", and the operator overwrites it");
}

TEST(MinMax, GradientMatchesDifferences) {
  for (const char* type : {"Max", "Min"}) {
    OpTest(type).Random("x", {2, 3}, 1).Random("y", {2, 3}, 2).Random("z", {2, 3}, 3).GradientMatches();
    OpTest(type).Input("x", {0, 3}, {}).Input("y", {0, 3}, {}).GradientMatches();
  }
}

TEST(MinMax, RefusesBadInput) {
  ExpectError(
      [] {
        OpTest("Max").Input("x", {2}, {1, 2}).Input("y", {3}, {1, 2, 3}).Run();
      },
      "shape mismatch: Max needs sizes that are equal or 1, from the last dimension on; x is [2] and y is [3]\n"
      "  at op 0 `output0 = Max(x, y)` with x float [2], y float [3]\n"
      "  in net \"test\"");
  ExpectError([] { OpTest("MaxGradient", 2).Random("y", {2}, 1).Random("dy", {2}, 1).Random("x", {2}, 1).Run(); },
              "…MaxGradient needs an output for each input after the second; it has 3 inputs and 2 outputs\n");
}

TEST(MinMax, GiveManyGradients) {
  constexpr int kMany = 1500;  // the parameters of one kernel of a GPU hold no more than 2000
  OpTest gradient("MaxGradient", kMany);
  gradient.Input("y", {2}, {1, 2}).Input("dy", {2}, {3, 4});
  for (int i = 0; i < kMany; ++i) gradient.Input(StrCat("x", i), {2}, {1, static_cast<double>(i)});
  gradient.Gives({2}, {3, 4}, 2);
  gradient.Gives({2}, {3, 0}, kMany - 1);
}

}  // namespace
}  // namespace stepnet
