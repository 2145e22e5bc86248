#include "op_test.h"

namespace stepnet {
namespace {

TEST(Sum, FollowsItsFormula) {
  for (const std::int64_t n : {1, 7, 64, 5000}) {
    OpTest("Sum").Random("x", {n}, 1).Random("y", {n}, 2).Random("z", {n}, 3).Follows([](const auto& in) {
      std::vector<double> sum(in[0].size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = in[0][i] + in[1][i] + in[2][i];
      return sum;
    });
  }
}

TEST(Sum, OfOneInputIsACopy) {
  for (const std::int64_t n : {1, 2, 7, 5000}) {
    OpTest("Sum").Random("x", {n}, 1).Follows([](const auto& in) { return in[0]; });
  }
}

TEST(Sum, WorksInPlace) {
  OpTest("Sum").Input("x", {2}, {1, -2}).Input("y", {2}, {10, 20}).InPlace(0, 0).Gives({2}, {11, 18});
  OpTest("Sum").Input("x", {2}, {1, -2}).InPlace(0, 0).Gives({2}, {1, -2});
}

TEST(Sum, AddsAnInputTwiceInPlace) {
  OpTest("Sum")
      .Input("x", {2}, {1, -2})
      .Input("y", {2}, {10, 20})
      .Input("x", {2}, {1, -2})
      .InPlace(0, 0)
      .Gives({2}, {12, 16});
}

TEST(Sum, GradientMatchesDifferences) {
  OpTest("Sum").Random("x", {2, 3}, 1).Random("y", {2, 3}, 2).Random("z", {2, 3}, 3).GradientMatches();
}

TEST(Sum, AcceptsNoElements) { OpTest("Sum").Input("x", {0, 2}, {}).Input("y", {0, 2}, {}).Gives({0, 2}, {}); }

TEST(Sum, AddsIntegers) {
  OpTest("Sum")
      .Input("x", Tensor::Of<std::int32_t>({2}, {1, std::numeric_limits<std::int32_t>::max()}))
      .Input("y", Tensor::Of<std::int32_t>({2}, {2, 1}))
      .GivesExactly(Tensor::Of<std::int32_t>({2}, {3, std::numeric_limits<std::int32_t>::min()}));
  OpTest("Sum")
      .Input("x", Tensor::Of<std::int64_t>({1}, {1}))
      .Input("y", Tensor::Of<std::int64_t>({1}, {2}))
      .Input("z", Tensor::Of<std::int64_t>({1}, {4}))
      .GivesExactly(Tensor::Of<std::int64_t>({1}, {7}));
}

TEST(Sum, RefusesOtherShapesAndTypes) {
  ExpectError(
      [] {
        OpTest("Sum").Input("x", {2}, {1, 2}).Input("y", {3}, {1, 2, 3}).Run();
      },
      "shape mismatch: Sum needs inputs of one shape; x is float [2] and y is float [3]\n"
      "  at op 0 `output0 = Sum(x, y)` with x float [2], y float [3]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("Sum").Input("x", {2}, {1, 2}).Input("y", Tensor::Of<std::int32_t>({2}, {1, 2})).Run();
      },
      "…type mismatch: Sum needs inputs of one type; x is float [2] and y is int32 [2]\n");
  ExpectError([] { OpTest("Sum").Input("x", Tensor::Of<bool>({1}, {true})).Run(); },
              "…type mismatch: Sum works on float, double, float16, bfloat16, int32 and int64; x is bool [1]\n");
}

}  // namespace
}  // namespace stepnet
