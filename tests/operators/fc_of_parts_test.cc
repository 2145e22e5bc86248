#include <tuple>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

// x w^T + b of two parts, side by side, where x [m, k] is the first input and their weights are the last ones.
std::vector<double> Product(const Values& in, int m, int k, int first, int second) {
  const std::vector<double>&w = in[in.size() - 2], &v = in[in.size() - 1];
  std::vector<double> y;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < first + second; ++j) {
      double sum = in.size() > 3 ? in[1][j] : 0;
      for (int l = 0; l < k; ++l) sum += in[0][i * k + l] * (j < first ? w[j * k + l] : v[(j - first) * k + l]);
      y.push_back(sum);
    }
  }
  return y;
}

TEST(FCOfParts, GivesTheProductsSideBySide) {
  for (const auto& [m, k, first, second] :
       {std::tuple{1, 7, 5, 3}, {6, 3, 1, 1}, {9, 20, 33, 2}, {2, 130, 515, 40}, {600, 3, 40, 16}, {0, 2, 3, 1}}) {
    const auto product = [=, m = m, k = k, first = first, second = second](const Values& in) {
      return Product(in, m, k, first, second);
    };
    OpTest("FCOfParts")
        .Random("x", {1, m, k}, 1)
        .Random("w", {first, k}, 2)
        .Random("v", {second, k}, 3)
        .Follows(product, 0, 1e-4);
    OpTest("FCOfPartsWithBias")
        .Random("x", {m, k}, 1)
        .Random("b", {first + second}, 4)
        .Random("w", {first, k}, 2)
        .Random("v", {second, k}, 3)
        .Follows(product, 0, 1e-4);
  }
}

TEST(FCOfParts, RefusesOtherShapes) {
  ExpectError(
      [] {
        OpTest("FCOfParts").Random("x", {2, 3}, 1).Random("w", {4, 3}, 2).Random("v", {4, 2}, 3).Run();
      },
      "…FCOfParts needs x [M, K] and weights [n, K] of each part");
  ExpectError(
      [] {
        OpTest("FCOfPartsWithBias").Random("x", {2, 3}, 1).Random("b", {4}, 2).Random("w", {5, 3}, 3).Run();
      },
      "…FCOfPartsWithBias needs a bias of 5 elements, one an output of all parts");
}

}  // namespace
}  // namespace stepnet
