#include <functional>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

// a^T b, where a [m, n] has its columns from `begin` on, and b is [m, k].
std::vector<double> TransposedProduct(const std::vector<double>& a, const std::vector<double>& b, int m, int n, int k,
                                      int begin, int end) {
  std::vector<double> c;
  for (int j = begin; j < end; ++j) {
    for (int l = 0; l < k; ++l) {
      double sum = 0;
      for (int i = 0; i < m; ++i) sum += a[i * n + j] * b[i * k + l];
      c.push_back(sum);
    }
  }
  return c;
}

TEST(FCGradientOfParts, GivesTheGradientsOfEachPart) {
  for (const auto& [m, k, first, second] :
       {std::tuple{1, 7, 5, 3}, {6, 3, 1, 1}, {9, 20, 33, 2}, {2, 130, 515, 40}, {600, 3, 40, 16}, {0, 2, 3, 1}}) {
    const int n = first + second;
    const OpTest op = OpTest("FCGradientOfParts", 5)
                          .Ints("parts", {first, second})
                          .Random("x", {1, m, k}, 1)
                          .Random("dy", {1, m, n}, 2)
                          .Random("w", {first, k}, 3)
                          .Random("v", {second, k}, 4);
    for (const int part : {0, 1}) {
      const int begin = part == 0 ? 0 : first, end = part == 0 ? first : n;
      const auto dw = [=, m = m, k = k](const Values& in) {
        return TransposedProduct(in[1], in[0], m, n, k, begin, end);
      };
      const auto db = [=, m = m](const Values& in) {
        return TransposedProduct(in[1], std::vector<double>(m, 1), m, n, 1, begin, end);
      };
      op.Follows(dw, part, 1e-4);
      op.Follows(db, 2 + part, 1e-4);
    }
    op.Follows(
        [=, m = m, k = k](const Values& in) {
          std::vector<double> weights = in[2];
          weights.insert(weights.end(), in[3].begin(), in[3].end());
          std::vector<double> dx;
          for (int i = 0; i < m; ++i) {
            for (int l = 0; l < k; ++l) {
              double sum = 0;
              for (int j = 0; j < n; ++j) sum += in[1][i * n + j] * weights[j * k + l];
              dx.push_back(sum);
            }
          }
          return dx;
        },
        4, 1e-4);
  }
}

TEST(FCGradientOfParts, DoesWithoutBiasesAndWithoutWeights) {
  OpTest("FCGradientOfParts", 2)
      .Arg("no_bias", 1)
      .Ints("parts", {1, 2})
      .Input("x", {2, 2}, {1, 2, 3, 4})
      .Input("dy", {2, 3}, {1, 0, 1, 0, 1, 1})
      .Gives({2, 2}, {3, 4, 4, 6}, 1);
}

TEST(FCGradientOfParts, RefusesOtherShapes) {
  const auto run = [](const Shape& dy, const Shape& v) {
    OpTest("FCGradientOfParts", 3)
        .Arg("no_bias", 1)
        .Ints("parts", {1, 2})
        .Random("x", {2, 2}, 1)
        .Random("dy", dy, 2)
        .Random("w", {1, 2}, 3)
        .Random("v", v, 4)
        .Run();
  };
  run({2, 3}, {2, 2});
  ExpectError(
      [&] {
        run({2, 4}, {2, 2});
      },
      "…FCGradientOfParts needs x [M, K] and dy [M, N], where N are the 3 columns");
  ExpectError([&] { run({3, 3}, {2, 2}); }, "…FCGradientOfParts needs x [M, K] and dy [M, N]");
  ExpectError([&] { run({2, 3}, {3, 2}); }, "…FCGradientOfParts needs weights [2, 2] of part 1");
}

TEST(FCGradientOfParts, SaysHowManyGradientsAndWeightsThereAre) {
  ExpectError(
      [] {
        OpTest("FCGradientOfParts", 5)
            .Ints("parts", {1, 2})
            .Random("x", {2, 2}, 1)
            .Random("dy", {2, 3}, 2)
            .Random("w", {1, 2}, 3)
            .Run();
      },
      "…FCGradientOfParts has 1 weights, and there are 2 parts");
  ExpectError(
      [] {
        OpTest("FCGradientOfParts", 2).Ints("parts", {1, 2}).Random("x", {2, 2}, 1).Random("dy", {2, 3}, 2).Run();
      },
      "…FCGradientOfParts gives 4 gradients here, not 2");
}

}  // namespace
}  // namespace stepnet
