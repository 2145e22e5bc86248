#include <numeric>

#include "op_test.h"

namespace stepnet {
namespace {

TEST(AveragedLoss, IsTheMean) {
  OpTest("AveragedLoss").Random("x", {3, 4}, 1).Follows([](const std::vector<std::vector<double>>& in) {
    return std::vector{std::accumulate(in[0].begin(), in[0].end(), 0.0) / 12};
  });
  OpTest("AveragedLoss").Input("x", {}, {3}).Gives({}, {3});
}

TEST(AveragedLoss, KeepsSmallTermsOfLongSums) {
  std::vector<double> x(100000, 0.001);
  x[0] = 1e5;
  OpTest("AveragedLoss").Input("x", {100000}, x).Gives({}, {(1e5 + 99.999) / 100000}, 0, 1e-7);
}

TEST(AveragedLoss, GradientMatchesDifferences) { OpTest("AveragedLoss").Random("x", {3, 2}, 1).GradientMatches(); }

TEST(AveragedLoss, AcceptsNoElements) {
  OpTest("AveragedLoss").Input("x", {0}, {}).Gives({}, {0});
  OpTest("AveragedLossGradient").Input("x", {0, 2}, {}).Input("dy", {}, {1}).Gives({0, 2}, {});
}

TEST(AveragedLoss, RefusesBadInputs) {
  ExpectError([] { OpTest("AveragedLoss").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: AveragedLoss works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = AveragedLoss(x)` with x int32 [1]\n"
              "  in net \"test\"");
  ExpectError([] { OpTest("AveragedLossGradient").Random("x", {3}, 1).Random("dy", {3}, 1).Run(); },
              "…AveragedLossGradient needs dy like what AveragedLoss gives, float []; dy is float [3]");
}

}  // namespace
}  // namespace stepnet
