#include "op_test.h"

namespace stepnet {
namespace {

Tensor Labels(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

constexpr size_t kRows = 3;
constexpr size_t kClasses = 4;

std::vector<double> Softmax(const std::vector<double>& x) {
  std::vector<double> p(x.size());
  for (size_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (size_t j = 0; j < kClasses; ++j) sum += std::exp(x[i * kClasses + j]);
    for (size_t j = 0; j < kClasses; ++j) p[i * kClasses + j] = std::exp(x[i * kClasses + j]) / sum;
  }
  return p;
}

// scale * weighted mean of -sum_j label_ij log p_ij.
double Loss(const std::vector<double>& x, const std::vector<double>& labels, const std::vector<double>& weights,
            double scale) {
  const std::vector<double> p = Softmax(x);
  double loss = 0;
  double total = 0;
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kClasses; ++j) {
      loss -= weights[i] * labels[i * kClasses + j] * std::log(p[i * kClasses + j]);
    }
    total += weights[i];
  }
  return scale * loss / total;
}

const std::vector<double> kOneHot = {0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1};
const std::vector<double> kSoft = {0.5, 0.25, 0.25, 0, 1, 0, 0, 0, 0.125, 0.125, 0.5, 0.25};
const std::vector<double> kOnes = {1, 1, 1};

OpTest Of(const Shape& x = {3, 4}) { return OpTest("SoftmaxWithLoss", 2).RandomIn("x", x, 1, -3, 3); }

TEST(SoftmaxWithLoss, FollowsItsFormula) {
  const OpTest op = Of().Arg("scale", 2.5f).Input("labels", Labels({2, 0, 3}));
  op.Follows([](const auto& in) { return Softmax(in[0]); }, 0);
  op.Follows([](const auto& in) { return std::vector{Loss(in[0], kOneHot, kOnes, 2.5)}; }, 1);
}

TEST(SoftmaxWithLoss, WeighsRows) {
  Of().Input("labels", Labels({2, 0, 3}))
      .Input("weights", {3}, {0.5, 0, 2})
      .Follows(
          [](const auto& in) {
            return std::vector{Loss(in[0], kOneHot, {0.5, 0, 2}, 1)};
          },
          1);
}

TEST(SoftmaxWithLoss, TakesLabelsThatAreProbabilities) {
  Of().Arg("label_prob", 1)
      .Input("labels", {3, 4}, kSoft)
      .Follows([](const auto& in) { return std::vector{Loss(in[0], kSoft, kOnes, 1)}; }, 1);
}

TEST(SoftmaxWithLoss, TakesRowsBeforeTheAxis) {
  OpTest("SoftmaxWithLoss", 2)
      .Arg("axis", -1)
      .RandomIn("x", {1, 3, 4}, 1, -3, 3)
      .Input("labels", Tensor::Of<std::int64_t>({1, 3, 1}, {2, 0, 3}))
      .Follows([](const auto& in) { return std::vector{Loss(in[0], kOneHot, kOnes, 1)}; }, 1);
}

TEST(SoftmaxWithLoss, NeitherOverflowsNorLosesSmallProbabilities) {
  const OpTest op =
      OpTest("SoftmaxWithLoss", 2).Input("x", {2, 2}, {1000, 0, -1000, 0}).Input("labels", Labels({1, 0}));
  op.Gives({2, 2}, {1, 0, 0, 1}, 0);
  op.Gives({}, {1000}, 1);
}

TEST(SoftmaxWithLoss, RowsOfWeightZeroCountForNothing) {
  const double nan = std::nan("");
  OpTest("SoftmaxWithLoss", 2)
      .Input("x", {2, 2}, {nan, 0, 0, 0})
      .Input("labels", Labels({1, 0}))
      .Input("weights", {2}, {0, 1})
      .Gives({}, {std::log(2)}, 1);
  OpTest("SoftmaxWithLoss", 2)
      .Input("x", {1, 2}, {1, 2})
      .Input("labels", Labels({1}))
      .Input("weights", {1}, {0})
      .Gives({}, {0}, 1);
  OpTest("SoftmaxWithLossGradient")
      .Input("x", {2, 2}, {nan, 0, 0, 0})
      .Input("labels", Labels({1, 0}))
      .Input("weights", {2}, {0, 1})
      .Input("p", {2, 2}, {nan, nan, 0.5, 0.5})
      .Input("dloss", {}, {1})
      .Gives({2, 2}, {0, 0, -0.5, 0.5});
}

TEST(SoftmaxWithLoss, GradientMatchesDifferences) {
  Of().Arg("scale", 2.5f).Input("labels", Labels({2, 0, 3})).GradientMatches({1});
  Of({3, 2, 2}).Input("labels", Labels({2, 0, 3})).Input("weights", {3}, {0.5, 0, 2}).GradientMatches({1}, {0});
  Of().Arg("label_prob", 1).Input("labels", {3, 4}, kSoft).GradientMatches({1}, {0});
  Of().Arg("label_prob", 1)
      .Input("labels", {3, 4}, kSoft)
      .Input("weights", {3}, {0.5, 0.25, 2})
      .GradientMatches({1}, {0});
}

TEST(SoftmaxWithLoss, AcceptsNoRows) {
  const OpTest op = OpTest("SoftmaxWithLoss", 2).Input("x", {0, 4}, {}).Input("labels", Labels({}));
  op.Gives({0, 4}, {}, 0);
  op.Gives({}, {0}, 1);
}

TEST(SoftmaxWithLoss, RefusesBadLabels) {
  const auto run = [](const Tensor& labels) { Of().Input("labels", labels).Run(); };
  ExpectError(
      [&] {
        run(Labels({0, 4, 0}));
      },
      "invalid argument: label 1 is 4; there are classes 0 to 3\n"
      "  at op 0 `output0, output1 = SoftmaxWithLoss(x, labels)` with x float [3, 4], labels int32 [3]\n"
      "  in net \"test\"");
  ExpectError([&] { run(Labels({0, -1, 0})); }, "…label 1 is -1; there are classes 0 to 3");
  ExpectError(
      [&] {
        run(Labels({0, 1}));
      },
      "…SoftmaxWithLoss on 3 rows of 4 classes needs one label a row; x is float [3, 4] and labels is int32 [2]");
  ExpectError(
      [] {
        OpTest("SoftmaxWithLoss", 2).Input("x", {1, 0}, {}).Input("labels", Labels({0})).Run();
      },
      "…shape mismatch: SoftmaxWithLoss needs at least one class for its labels; x is float [1, 0]\n");
  const auto run_soft = [](const std::vector<double>& labels) {
    OpTest("SoftmaxWithLoss", 2).Arg("label_prob", 1).Random("x", {1, 2}, 1).Input("labels", {1, 2}, labels).Run();
  };
  ExpectError([&] { run_soft({0.5, 0.6}); }, "…the labels of row 0 add up to 1.1; probabilities add up to 1");
  ExpectError([&] { run_soft({0.5, 0.501}); }, "…the labels of row 0 add up to 1.0009999; probabilities add up to 1");
  ExpectError([&] { run_soft({1.5, -0.5}); }, "…label [0, 1] is -0.5; probabilities are not negative");
  ExpectError([&] { run_soft({0.5, std::nan("")}); }, "…label [0, 1] is nan; probabilities are not negative");
  ExpectError(
      [] {
        Of().Input("labels", Labels({0, 1, 2})).Random("w", {2}, 1).Run();
      },
      "…SoftmaxWithLoss on 3 rows needs as many weights; w is float [2]");
}

TEST(SoftmaxWithLoss, RefusesAGradientThroughTheProbabilities) {
  ExpectError(
      [] {
        Of().Input("labels", Labels({0, 1, 2})).GradientMatches({0, 1});
      },
      "invalid net: something differentiates \"output0\"; SoftmaxWithLoss has a gradient through its loss alone "
      "(Softmax has one)");
}

TEST(SoftmaxWithLossGradient, RefusesInputsThatDoNotFit) {
  const auto run = [](const Tensor& labels, const Shape& p, const Shape& dloss) {
    OpTest("SoftmaxWithLossGradient")
        .Random("x", {1, 2}, 1)
        .Input("l", labels)
        .Random("p", p, 2)
        .Random("d", dloss, 3)
        .Run();
  };
  ExpectError([&] { run(Labels({2}), {1, 2}, {}); }, "…label 0 is 2; there are classes 0 to 1");
  ExpectError(
      [&] {
        run(Labels({1}), {2, 2}, {});
      },
      "…needs inputs of one shape; x is float [1, 2] and p is float [2, 2]");
  ExpectError(
      [&] {
        run(Labels({1}), {1, 2}, {2});
      },
      "…SoftmaxWithLossGradient needs dloss of one element; d is float [2]");
  ExpectError(
      [] {
        OpTest("SoftmaxWithLossGradient").Random("x", {1, 2}, 1).Input("l", Labels({1})).Random("p", {1, 2}, 1).Run();
      },
      "…SoftmaxWithLossGradient takes 4 or 5 inputs, has 3");
}

}  // namespace
}  // namespace stepnet
