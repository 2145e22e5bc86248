#include "op_test.h"

namespace stepnet {
namespace {

// Means over rows of 4 of loss(x, t).
template <typename Loss>
auto RowMeans(Loss loss) {
  return [loss](const std::vector<std::vector<double>>& in) {
    std::vector<double> means(in[0].size() / 4, 0);
    for (size_t i = 0; i < in[0].size(); ++i) means[i / 4] += loss(in[0][i], in[1][i]) / 4;
    return means;
  };
}

double LogSigmoid(double x) { return -std::log(1 + std::exp(-x)); }

OpTest Of(const char* variant = nullptr) {
  OpTest op = OpTest("SigmoidCrossEntropyWithLogits").RandomIn("x", {3, 4}, 1, -4, 4).RandomIn("t", {3, 4}, 2, 0, 1);
  if (variant != nullptr) op.Arg(variant, 1);
  return op;
}

TEST(SigmoidCrossEntropy, FollowsItsFormula) {
  Of().Follows(RowMeans([](double x, double t) { return -t * LogSigmoid(x) - (1 - t) * LogSigmoid(-x); }));
  Of("log_D_trick").Follows(RowMeans([](double x, double t) { return -(2 * t - 1) * LogSigmoid(x); }));
  Of("unjoined_lr_loss").Follows(RowMeans([](double x, double t) {
    return (1 - t) * std::log(1 + std::exp(x)) - x * t;
  }));
}

TEST(SigmoidCrossEntropy, NeitherOverflowsNorLosesNaN) {
  OpTest("SigmoidCrossEntropyWithLogits")
      .Input("x", {4, 1}, {1000, -1000, 1000, std::nan("")})
      .Input("t", {4, 1}, {1, 1, 0, 0})
      .Gives({4}, {0, 1000, 1000, std::nan("")});
}

TEST(SigmoidCrossEntropy, GradientMatchesDifferences) {
  Of().GradientMatches({}, {0});
  Of("log_D_trick").GradientMatches({}, {0});
  Of("unjoined_lr_loss").GradientMatches({}, {0});
}

TEST(SigmoidCrossEntropy, AcceptsScalarsAndNoElements) {
  const double at_zero = std::log(2);
  OpTest("SigmoidCrossEntropyWithLogits").Input("x", {}, {0}).Input("t", {}, {1}).Gives({}, {at_zero});
  OpTest("SigmoidCrossEntropyWithLogits").Input("x", {0, 3}, {}).Input("t", {0, 3}, {}).Gives({0}, {});
  OpTest("SigmoidCrossEntropyWithLogits").Input("x", {2, 0}, {}).Input("t", {2, 0}, {}).Gives({2}, {0, 0});
}

TEST(SigmoidCrossEntropy, RefusesBadInputs) {
  ExpectError(
      [] {
        OpTest("SigmoidCrossEntropyWithLogits").Random("x", {2, 3}, 1).Random("t", {2}, 1).Run();
      },
      "shape mismatch: SigmoidCrossEntropyWithLogits needs inputs of one shape; x is float [2, 3] and t is "
      "float [2]\n"
      "  at op 0 `output0 = SigmoidCrossEntropyWithLogits(x, t)` with x float [2, 3], t float [2]\n"
      "  in net \"test\"");
  ExpectError([] { Of("log_D_trick").Arg("unjoined_lr_loss", 1).Run(); },
              "…SigmoidCrossEntropyWithLogits has both log_D_trick and unjoined_lr_loss; needs one at most");
  ExpectError(
      [] {
        OpTest("SigmoidCrossEntropyWithLogitsGradient")
            .Random("dy", {3}, 1)
            .Random("x", {2, 3}, 1)
            .Random("t", {2, 3}, 1)
            .Run();
      },
      "…SigmoidCrossEntropyWithLogitsGradient needs dy of the shape of x without its last dimension; dy is float [3] "
      "and x is float [2, 3]");
}

}  // namespace
}  // namespace stepnet
