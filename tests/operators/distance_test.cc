#include "op_test.h"

namespace stepnet {
namespace {

// Sums of term(x - y) over rows of 6.
template <typename Term>
auto RowSums(Term term) {
  return [term](const std::vector<std::vector<double>>& in) {
    std::vector<double> sums(in[0].size() / 6, 0);
    for (size_t i = 0; i < in[0].size(); ++i) sums[i / 6] += term(in[0][i] - in[1][i]);
    return sums;
  };
}

OpTest Of(const char* type) { return OpTest(type).Random("x", {3, 2, 3}, 1).Random("y", {3, 2, 3}, 2); }

TEST(SquaredL2Distance, FollowsItsFormula) {
  Of("SquaredL2Distance").Follows(RowSums([](double d) { return d * d / 2; }));
  OpTest("SquaredL2Distance").Input("x", {}, {3}).Input("y", {}, {1}).Gives({1}, {2});
}

TEST(SquaredL2Distance, GradientMatchesDifferences) { Of("SquaredL2Distance").GradientMatches(); }

TEST(L1Distance, FollowsItsFormula) {
  Of("L1Distance").Follows(RowSums([](double d) { return std::abs(d); }));
}

TEST(L1Distance, GradientMatchesDifferences) { Of("L1Distance").GradientMatches(); }

TEST(L1Distance, GradientIsZeroAtTheKinkAndKeepsNaN) {
  OpTest("L1DistanceGradient", 2)
      .Input("x", {3, 1}, {1, std::nan(""), 2})
      .Input("y", {3, 1}, {1, 1, 3})
      .Input("dd", {3}, {5, 5, 5})
      .Gives({3, 1}, {0, std::nan(""), -5});
}

TEST(Distance, AcceptsNoElements) {
  for (const char* type : {"SquaredL2Distance", "L1Distance"}) {
    OpTest(type).Input("x", {0, 2}, {}).Input("y", {0, 2}, {}).Gives({0}, {});
    OpTest(type).Input("x", {2, 0}, {}).Input("y", {2, 0}, {}).Gives({2}, {0, 0});
  }
}

TEST(Distance, RefusesInputsThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("SquaredL2Distance").Random("x", {2, 3}, 1).Random("y", {3, 2}, 2).Run();
      },
      "shape mismatch: SquaredL2Distance needs inputs of one shape; x is float [2, 3] and y is float [3, 2]\n"
      "  at op 0 `output0 = SquaredL2Distance(x, y)` with x float [2, 3], y float [3, 2]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("SquaredL2DistanceGradient", 2).Random("x", {2, 3}, 1).Random("y", {2, 3}, 2).Random("dd", {3}, 3).Run();
      },
      "…SquaredL2DistanceGradient needs dd like what SquaredL2Distance gives, float [2]; dd is float [3]");
}

}  // namespace
}  // namespace stepnet
