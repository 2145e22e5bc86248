#include "op_test.h"

namespace stepnet {
namespace {

Tensor Labels(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

OpTest Probabilities(const char* type, const Shape& shape) { return OpTest(type).RandomIn("x", shape, 1, 0.05, 1); }

TEST(LabelCrossEntropy, FollowsItsFormula) {
  const std::vector<std::int32_t> labels = {2, 0, 1};
  const auto formula = [&](const std::vector<std::vector<double>>& in) {
    std::vector<double> y;
    for (size_t i = 0; i < 3; ++i) y.push_back(-std::log(in[0][i * 4 + static_cast<size_t>(labels[i])]));
    return y;
  };
  Probabilities("LabelCrossEntropy", {3, 4}).Input("label", Labels(labels)).Follows(formula);
  Probabilities("LabelCrossEntropy", {3, 2, 2})
      .Input("label", Tensor::Of<std::int64_t>({3, 1}, {2, 0, 1}))
      .Follows(formula);
}

TEST(LabelCrossEntropy, HasAFloorAndKeepsNaN) {
  OpTest("LabelCrossEntropy")
      .Input("x", {2, 1}, {0, std::nan("")})
      .Input("label", Labels({0, 0}))
      .Gives({2}, {-std::log(1e-20), std::nan("")});
}

TEST(LabelCrossEntropy, TakesAVectorForOneRow) {
  OpTest("LabelCrossEntropy").Input("x", {2}, {0.5, 0.25}).Input("label", Labels({1})).Gives({1}, {-std::log(0.25)});
}

TEST(LabelCrossEntropy, GradientMatchesDifferences) {
  Probabilities("LabelCrossEntropy", {3, 4}).Input("label", Labels({2, 0, 3})).GradientMatches();
}

TEST(LabelCrossEntropy, GradientHasAFloor) {
  OpTest("LabelCrossEntropyGradient")
      .Input("x", {2, 2}, {0, 1, 0.5, 0.5})
      .Input("label", Labels({0, 1}))
      .Input("dy", {2}, {3e-20, 2})
      .Gives({2, 2}, {-3, 0, 0, -4});
}

TEST(LabelCrossEntropy, AcceptsNoRows) {
  OpTest("LabelCrossEntropy").Input("x", {0, 4}, {}).Input("label", Labels({})).Gives({0}, {});
}

TEST(LabelCrossEntropy, RefusesBadLabels) {
  const auto run = [](const Tensor& labels) {
    Probabilities("LabelCrossEntropy", {2, 4}).Input("label", labels).Run();
  };
  ExpectError(
      [&] {
        run(Labels({3, 4}));
      },
      "invalid argument: label 1 is 4; there are classes 0 to 3\n"
      "  at op 0 `output0 = LabelCrossEntropy(x, label)` with x float [2, 4], label int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { run(Labels({-1, 0})); }, "…label 0 is -1; there are classes 0 to 3");
  ExpectError(
      [&] { run(Labels({1})); },
      "…LabelCrossEntropy on 2 rows of 4 classes needs one label a row; x is float [2, 4] and label is int32 [1]");
  ExpectError(
      [&] {
        run(Tensor::Of<float>({2}, {0, 0}));
      },
      "…LabelCrossEntropy works on int32 and int64; label is float");
  ExpectError(
      [] {
        OpTest("LabelCrossEntropyGradient").Random("x", {1, 2}, 1).Input("l", Labels({2})).Random("dy", {1}, 1).Run();
      },
      "…label 0 is 2; there are classes 0 to 1");
  ExpectError(
      [] {
        OpTest("LabelCrossEntropyGradient").Random("x", {1, 2}, 1).Input("l", Labels({1})).Random("dy", {2}, 1).Run();
      },
      "…LabelCrossEntropyGradient needs dy like what LabelCrossEntropy gives, float [1]; dy is float [2]");
}

TEST(CrossEntropy, FollowsItsFormula) {
  Probabilities("CrossEntropy", {3, 4})
      .RandomIn("label", {3, 4}, 2, 0, 1)
      .Follows([](const std::vector<std::vector<double>>& in) {
        std::vector<double> y(3, 0);
        for (size_t i = 0; i < 12; ++i) y[i / 4] -= in[1][i] * std::log(in[0][i]);
        return y;
      });
  OpTest("CrossEntropy").Input("x", {1, 2}, {0, 1}).Input("label", {1, 2}, {1, 0}).Gives({1}, {-std::log(1e-20)});
}

TEST(CrossEntropy, GradientMatchesDifferences) {
  Probabilities("CrossEntropy", {3, 4}).RandomIn("label", {3, 4}, 2, 0.1, 0.9).GradientMatches({0}, {0});
}

TEST(CrossEntropy, GradientHasAFloor) {
  OpTest("CrossEntropyGradient")
      .Input("x", {1, 2}, {0, 0.5})
      .Input("label", {1, 2}, {0.5, 0.5})
      .Input("dy", {1}, {4e-20})
      .Gives({1, 2}, {-2, -4e-20});
}

TEST(CrossEntropy, AcceptsNoRows) {
  OpTest("CrossEntropy").Input("x", {0, 4}, {}).Input("l", {0, 4}, {}).Gives({0}, {});
}

TEST(CrossEntropy, RefusesLabelsThatAreNoProbabilities) {
  const auto run = [](double label) {
    OpTest("CrossEntropy").Input("x", {1, 2}, {0.5, 0.5}).Input("label", {1, 2}, {0, label}).Run();
  };
  ExpectError([&] { run(1.5); }, "…label [0, 1] is 1.5; CrossEntropy needs probabilities");
  ExpectError([&] { run(std::nan("")); }, "…label [0, 1] is nan; CrossEntropy needs probabilities");
  ExpectError(
      [] {
        OpTest("CrossEntropy").Random("x", {1, 2}, 1).Random("label", {1, 3}, 1).Run();
      },
      "…CrossEntropy needs inputs of one shape; x is float [1, 2] and label is float [1, 3]");
}

}  // namespace
}  // namespace stepnet
