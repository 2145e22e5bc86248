#include <cmath>
#include <numeric>

#include "op_test.h"
#include "stepnet/nets/backward.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

struct Reference {
  std::vector<double> y;
  std::vector<double> mean;
  std::vector<double> deviation;
};

Reference Normalize(const std::vector<double>& x, size_t n, double epsilon) {
  Reference reference;
  for (size_t row = 0; row < x.size(); row += n) {
    double mean = 0;
    double variance = 0;
    for (size_t i = row; i < row + n; ++i) mean += x[i] / static_cast<double>(n);
    for (size_t i = row; i < row + n; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
    reference.mean.push_back(mean);
    reference.deviation.push_back(std::sqrt(variance + epsilon));
    for (size_t i = row; i < row + n; ++i) reference.y.push_back((x[i] - mean) / reference.deviation.back());
  }
  return reference;
}

TEST(LayerNorm, FollowsItsFormula) {
  struct Case {
    Shape shape;
    int axis;
    size_t n;
    Shape statistics;
  };
  const std::vector<Case> cases = {
      {{3, 5}, 1, 5, {3, 1}},           {{2, 3, 4}, -1, 4, {2, 3, 1}}, {{2, 3, 4}, 1, 12, {2, 1}},
      {{1, 2, 150}, 2, 150, {1, 2, 1}}, {{2, 3}, 0, 6, {1}},           {{4, 1}, 1, 1, {4, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(StrCat(c.shape, " from ", c.axis));
    const OpTest test = OpTest("LayerNorm", 3).Arg("axis", c.axis).Arg("epsilon", 1e-3f).Random("x", c.shape, 5);
    const auto of = [&](auto part) { return [&, part](const auto& in) { return part(Normalize(in[0], c.n, 1e-3f)); }; };
    test.Follows(of([](const Reference& r) { return r.y; }), 0);
    test.Follows(of([](const Reference& r) { return r.mean; }), 1);
    test.Follows(of([](const Reference& r) { return r.deviation; }), 2);
    EXPECT_EQ(test.Run()[1].shape(), c.statistics);
    EXPECT_EQ(test.Run()[2].shape(), c.statistics);
  }
}

TEST(LayerNorm, KeepsItsDigitsFarFromZero) {
  OpTest("LayerNorm", 3).Arg("epsilon", 0.0f).Input("x", {1, 2}, {10000, 10001}).Gives({1, 2}, {-1, 1});
}

// One float sum of so many would lose digits; 64 partial sums do not.
TEST(LayerNorm, KeepsTheDigitsOfTheMeanOfLongRows) {
  constexpr std::int64_t kRows = 8, kColumns = 4096;
  constexpr double kUlp = 0x1p-20;  // of numbers from 8 to 16
  const std::vector<double> x = ToDoubles(OpTest("Scale").RandomIn("x", {kRows * kColumns}, 3, 9, 11).Run()[0]);
  const Tensor means = OpTest("LayerNorm", 3).Input("x", {kRows, kColumns}, x).Run()[1];
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto row = x.begin() + i * kColumns;
    const double mean = std::accumulate(row, row + kColumns, 0.0) / kColumns;
    EXPECT_NEAR(means.data<float>()[i], mean, 2 * kUlp) << "row " << i;
  }
}

TEST(LayerNorm, GradientMatchesDifferences) {
  OpTest("LayerNorm", 3).Random("x", {3, 5}, 1).GradientMatches({0});
  OpTest("LayerNorm", 3).Arg("axis", -1).Arg("epsilon", 0.5f).Random("x", {1, 2, 37}, 2).GradientMatches({0});
  OpTest("LayerNorm", 3).Arg("axis", 0).Random("x", {2, 3}, 3).GradientMatches({0});
}

TEST(LayerNorm, WorksInPlace) {
  OpTest("LayerNorm", 3).Arg("epsilon", 0.0f).Input("x", {1, 2}, {1, 3}).InPlace(0, 0).Gives({1, 2}, {-1, 1});
}

// A copy of x takes its place, which the gradient asks for its shape.
TEST(LayerNorm, HasItsGradientInPlace) {
  const auto gradient = [](const std::string& layer, const std::string& loss) {
    NetDef net;
    *net.add_op() = ParseOp(layer);
    *net.add_op() = ParseOp("loss = Sqr(" + loss + ")");
    *net.add_op() = ParseOp("weighted = Mul(loss, w)");
    const NetWithGradients made = AddGradients(net, {"weighted"}, {"x"});
    Workspace workspace;
    workspace.SetTensor("x", Tensor::Of<float>({2, 3}, {1, 3, 4, -2, 0, 7}));
    workspace.SetTensor("w", Tensor::Of<float>({2, 3}, {1, 2, 5, -1, 3, 1}));
    RunNetOnce(made.net, workspace);
    return ToDoubles(workspace.GetTensor(made.gradients.at("x").dense));
  };
  EXPECT_EQ(gradient("x, m, s = LayerNorm(x)", "x"), gradient("y, m, s = LayerNorm(x)", "y"));
}

TEST(LayerNorm, AcceptsNoElements) {
  OpTest("LayerNorm", 3).Input("x", {0, 5}, {}).Gives({0, 5}, {});
  OpTest("LayerNorm", 3).Input("x", {0, 5}, {}).Gives({0, 1}, {}, 2);
  OpTest("LayerNorm", 3).Input("x", {0, 5}, {}).GradientMatches({0});
  OpTest("LayerNorm", 3).Input("x", {2, 0}, {}).Gives({2, 1}, {0, 0}, 1);
  OpTest("LayerNorm", 3).Input("x", {2, 0}, {}).GradientMatches({0});
}

TEST(LayerNorm, PassesNoGradientThroughItsStatistics) {
  ExpectError(
      [] {
        OpTest("LayerNorm", 3).Random("x", {3, 5}, 1).GradientMatches({0, 1});
      },
      "invalid net: LayerNorm passes no gradient through its output \"mean\", here \"output1\": its gradient, "
      "LayerNormGradient, is not given dmean; let the loss not depend on it, or put a StopGradient behind it");
}

TEST(LayerNorm, RefusesBadInput) {
  ExpectError(
      [] {
        OpTest("LayerNorm", 3).Arg("axis", 2).Random("x", {2, 3}, 1).Run();
      },
      "invalid argument: LayerNorm: axis is 2, but the tensor is [2, 3] and has 2 dimensions\n"
      "  at op 0 `output0, output1, output2 = LayerNorm(x)` with x float [2, 3]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("LayerNorm", 3).Input("x", Tensor::Of<std::int32_t>({1, 1}, {1})).Run();
      },
      "…type mismatch: LayerNorm works on float, double, float16 and bfloat16; x is int32 [1, 1]\n");
  ExpectError(
      [] {
        OpTest("LayerNorm", 3).Arg("epsilon", -1.0f).Random("x", {2, 3}, 1).Run();
      },
      "…LayerNorm: epsilon is -1, must be at least 0\n");
  ExpectError(
      [] {
        OpTest("LayerNormGradient")
            .Random("dy", {2, 3}, 1)
            .Random("y", {2, 3}, 1)
            .Random("mean", {2}, 1)
            .Random("std", {2}, 1)
            .Random("x", {2, 3}, 1)
            .Run();
      },
      "…shape mismatch: LayerNormGradient needs std [2, 1] for dy is float [2, 3]; std is float [2]\n");
}

}  // namespace
}  // namespace stepnet
