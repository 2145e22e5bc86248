#include "op_test.h"

namespace stepnet {
namespace {

TEST(WeightedSum, FollowsItsFormula) {
  for (const std::int64_t n : {1, 7, 5000}) {
    OpTest("WeightedSum")
        .Random("x", {n}, 1)
        .Input("a", {1}, {0.5})
        .Random("y", {n}, 2)
        .Input("b", {}, {-3})
        .Follows([](const auto& in) {
          std::vector<double> sum;
          for (size_t i = 0; i < in[0].size(); ++i) sum.push_back(0.5 * in[0][i] - 3 * in[2][i]);
          return sum;
        });
  }
}

TEST(WeightedSum, WorksInPlaceAlsoWhenItsFirstInputComesTwice) {
  const auto sum = [] { return OpTest("WeightedSum").Input("x", {2}, {1, -2}).Input("a", {1}, {2}); };
  sum().Input("y", {2}, {10, 20}).Input("b", {1}, {-1}).InPlace(0, 0).Gives({2}, {-8, -24});
  sum().Input("x", {2}, {1, -2}).Input("b", {1}, {3}).InPlace(0, 0).Gives({2}, {5, -10});
}

TEST(WeightedSum, GradientMatchesDifferences) {
  const OpTest sum =
      OpTest("WeightedSum").Random("x", {2, 3}, 1).Input("a", {1}, {0.5}).Random("y", {2, 3}, 2).Input("b", {1}, {-2});
  sum.GradientMatches({}, {0, 2});
  OpTest(sum).Arg("grad_on_w", 1).GradientMatches();
}

TEST(WeightedSum, AcceptsNoElements) {
  OpTest("WeightedSum").Input("x", {0, 2}, {}).Input("a", {1}, {1}).Gives({0, 2}, {});
}

TEST(WeightedSum, RefusesBadInput) {
  ExpectError([] { OpTest("WeightedSum").Random("x", {2}, 1).Random("a", {1}, 1).Random("y", {2}, 1).Run(); },
              "…WeightedSum has 3 inputs, needs pairs of a tensor and a weight");
  ExpectError([] { OpTest("WeightedSum").Random("x", {2}, 1).Random("a", {2}, 1).Run(); },
              "…WeightedSum needs weights of one element; a is float [2]\n");
  ExpectError(
      [] {
        OpTest("WeightedSum").Random("x", {2}, 1).Random("a", {1}, 1).Random("y", {1, 2}, 1).Random("a", {1}, 1).Run();
      },
      "…WeightedSum needs inputs of one shape; x is float [2] and y is float [1, 2]\n");
  ExpectError([] { OpTest("WeightedSum").Random("x", {2}, 1).Input("a", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…WeightedSum needs inputs of one type; x is float [2] and a is int32 [1]\n");
}

}  // namespace
}  // namespace stepnet
