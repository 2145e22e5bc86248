#include "op_test.h"

namespace stepnet {
namespace {

struct Case {
  Shape shape;
  int axis;
  std::int64_t n;
};

const std::vector<Case> kCases = {{{3, 5}, 1, 5}, {{1, 2, 37}, 2, 37}, {{2, 3, 4}, 1, 12},
                                  {{2, 3}, 0, 6}, {{2, 3, 4}, -1, 4},  {{5, 1}, 1, 1}};

OpTest TestOf(const Case& c) {
  return OpTest("ElementwiseLinear")
      .Arg("axis", c.axis)
      .Random("x", c.shape, 1)
      .Random("w", {c.n}, 2)
      .Random("b", {c.n}, 3);
}

TEST(ElementwiseLinear, FollowsItsFormula) {
  for (const Case& c : kCases) {
    TestOf(c).Follows([](const auto& in) {
      std::vector<double> y(in[0].size());
      for (size_t i = 0; i < y.size(); ++i) y[i] = in[0][i] * in[1][i % in[1].size()] + in[2][i % in[1].size()];
      return y;
    });
  }
}

TEST(ElementwiseLinear, GradientMatchesDifferences) {
  for (const Case& c : kCases) TestOf(c).GradientMatches();
}

TEST(ElementwiseLinear, WorksInPlace) {
  OpTest("ElementwiseLinear")
      .Input("x", {2, 2}, {1, 2, 3, 4})
      .Input("w", {2}, {10, 100})
      .Input("b", {2}, {1, 2})
      .InPlace(0, 0)
      .Gives({2, 2}, {11, 202, 31, 402});
}

TEST(ElementwiseLinear, AcceptsNoElements) {
  TestOf({{0, 3}, 1, 3}).Gives({0, 3}, {});
  TestOf({{0, 3}, 1, 3}).GradientMatches();
  TestOf({{3, 0}, 1, 0}).Gives({3, 0}, {});
  TestOf({{3, 0}, 1, 0}).GradientMatches();
  constexpr std::int64_t kHuge = std::int64_t{1} << 50;
  TestOf({{kHuge, 0}, 1, 0}).Gives({kHuge, 0}, {});
  TestOf({{kHuge, 0}, 1, 0}).GradientMatches();
}

TEST(ElementwiseLinear, RefusesBadInput) {
  ExpectError(
      [] {
        TestOf({{2, 3}, 1, 2}).Run();
      },
      "shape mismatch: ElementwiseLinear with axis 1 needs w [3]; x is float [2, 3] and w is float [2]\n"
      "  at op 0 `output0 = ElementwiseLinear(x, w, b)` with x float [2, 3], w float [2], b float [2]\n"
      "  in net \"test\"");
  ExpectError([] { TestOf({{2, 3}, 2, 3}).Run(); }, "…invalid argument: ElementwiseLinear: axis is 2, ");
  ExpectError(
      [] {
        OpTest("ElementwiseLinear")
            .Random("x", {2, 3}, 1)
            .Random("w", {3}, 1)
            .Input("b", Tensor::Of<std::int32_t>({3}, {1, 2, 3}))
            .Run();
      },
      "…type mismatch: ElementwiseLinear needs inputs of one type; x is float [2, 3] and b is int32 [3]\n");
  ExpectError(
      [] {
        OpTest("ElementwiseLinearGradient", 3).Random("dy", {2, 2}, 1).Random("x", {2, 3}, 1).Random("w", {3}, 1).Run();
      },
      "…shape mismatch: ElementwiseLinearGradient needs inputs of one shape; dy is float [2, 2] and x is float [2, "
      "3]\n");
}

}  // namespace
}  // namespace stepnet
