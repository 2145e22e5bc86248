#include <array>
#include <functional>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

// y = x w^T + b with w [n, k], or [k, n] when transposed.
std::vector<double> Fc(const Values& in, int m, int k, int n, bool transposed) {
  std::vector<double> y;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = in[2][j];
      for (int l = 0; l < k; ++l) sum += in[0][i * k + l] * in[1][transposed ? l * n + j : j * k + l];
      y.push_back(sum);
    }
  }
  return y;
}

TEST(FC, FollowsItsFormula) {
  OpTest("FC")
      .Input("x", {2, 2}, {1, 2, 3, 4})
      .Input("w", {3, 2}, {1, 0, 0, 1, 1, 1})
      .Input("b", {3}, {0, 10, 100})
      .Gives({2, 3}, {1, 12, 103, 3, 14, 107});
  for (const auto& [m, k, n] : {std::tuple{1, 7, 5}, {6, 3, 1}, {9, 20, 33}, {2, 130, 515}, {600, 3, 40}}) {
    OpTest("FC").Random("x", {m, k}, 1).Random("w", {n, k}, 2).Random("b", {n}, 3).Follows([&](const Values& in) {
      return Fc(in, m, k, n, false);
    });
    OpTest("FCTransposed")
        .Random("x", {m, k}, 1)
        .Random("w", {k, n}, 2)
        .Random("b", {n}, 3)
        .Follows([&](const Values& in) { return Fc(in, m, k, n, true); });
  }
}

TEST(FC, NeedsNoBias) {
  for (const auto& [m, k, n] : {std::tuple{1, 7, 5}, {6, 3, 1}, {9, 20, 33}}) {
    const std::vector<double> zeros(static_cast<size_t>(n));
    OpTest("FC").Random("x", {m, k}, 1).Random("w", {n, k}, 2).Follows([&](const Values& in) {
      return Fc({in[0], in[1], zeros}, m, k, n, false);
    });
    OpTest("FCTransposed").Random("x", {m, k}, 1).Random("w", {k, n}, 2).Follows([&](const Values& in) {
      return Fc({in[0], in[1], zeros}, m, k, n, true);
    });
  }
  OpTest("FC").Arg("axis", 2).Random("x", {2, 3, 4}, 1).Random("w", {5, 4}, 2).GradientMatches();
  OpTest("FCTransposed").Random("x", {3, 4}, 1).Random("w", {4, 5}, 2).GradientMatches();
  OpTest("FC").Input("x", {2, 0}, {}).Input("w", {2, 0}, {}).Gives({2, 2}, {0, 0, 0, 0});
}

TEST(FC, CutsShapesAtItsAxes) {
  const auto formula = [](const Values& in) { return Fc(in, 6, 4, 5, false); };
  const OpTest sequence =
      OpTest("FC").Arg("axis", 2).Random("x", {2, 3, 4}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3);
  sequence.Follows(formula);
  EXPECT_EQ(sequence.Run()[0].shape(), Shape({2, 3, 5}));
  OpTest("FC").Arg("axis", -1).Random("x", {2, 3, 4}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3).Follows(formula);
  const OpTest deep = OpTest("FC").Random("x", {6, 2, 2}, 1).Random("w", {5, 4, 1}, 2).Random("b", {5}, 3);
  deep.Follows(formula);
  EXPECT_EQ(deep.Run()[0].shape(), Shape({6, 5}));
  OpTest("FC").Arg("axis_w", 2).Random("x", {6, 4}, 1).Random("w", {1, 5, 4}, 2).Random("b", {5}, 3).Follows(formula);
  const OpTest row = OpTest("FC").Arg("axis", 0).Random("x", {4}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3);
  row.Follows([](const Values& in) { return Fc(in, 1, 4, 5, false); });
  EXPECT_EQ(row.Run()[0].shape(), Shape({5}));
}

TEST(FC, GradientMatchesDifferences) {
  OpTest("FC").Random("x", {3, 4}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3).GradientMatches();
  OpTest("FC").Arg("axis", 2).Random("x", {1, 3, 4}, 1).Random("w", {2, 2, 2}, 2).Random("b", {2}, 3).GradientMatches();
  OpTest("FCTransposed").Random("x", {3, 4}, 1).Random("w", {4, 5}, 2).Random("b", {5}, 3).GradientMatches();
}

// One output of the gradient operator as a sum over all i < m, j < n, l < k; `add` adds one of its terms.
std::vector<double> SumOfTerms(int m, int n, int k, int size, const std::function<void(int, int, int, double*)>& add) {
  std::vector<double> sums(size);
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int l = 0; l < k; ++l) add(i, j, l, sums.data());
    }
  }
  return sums;
}

TEST(FC, GradientsFollowTheirFormulasInBlocks) {
  for (const auto& [m, k, n] : {std::array{2, 130, 515}, {3, 300, 260}, {600, 5, 40}}) {
    for (const bool transposed : {false, true}) {
      const auto in_w = [transposed, k = k, n = n](int j, int l) { return transposed ? l * n + j : j * k + l; };
      const OpTest test = OpTest(transposed ? "FCTransposedGradient" : "FCGradient", 3)
                              .Random("x", {m, k}, 1)
                              .Random("w", transposed ? Shape{k, n} : Shape{n, k}, 2)
                              .Random("dy", {m, n}, 3);
      const auto dw = [&, m = m, n = n, k = k](const Values& in) {
        return SumOfTerms(m, n, k, n * k, [&](int i, int j, int l, double* sums) {
          sums[in_w(j, l)] += in[2][i * n + j] * in[0][i * k + l];
        });
      };
      const auto db = [m = m, n = n](const Values& in) {
        return SumOfTerms(m, n, 1, n, [&](int i, int j, int, double* sums) { sums[j] += in[2][i * n + j]; });
      };
      const auto dx = [&, m = m, n = n, k = k](const Values& in) {
        return SumOfTerms(m, n, k, m * k, [&](int i, int j, int l, double* sums) {
          sums[i * k + l] += in[2][i * n + j] * in[1][in_w(j, l)];
        });
      };
      test.Follows(dw, 0);
      test.Follows(db, 1);
      test.Follows(dx, 2);
    }
  }
}

TEST(FC, GradientLeavesOutWhatNobodyAsksFor) {
  const OpTest with_two = OpTest("FCGradient", 2).Random("x", {3, 4}, 1).Random("w", {5, 4}, 2).Random("dy", {3, 5}, 3);
  const OpTest with_three =
      OpTest("FCGradient", 3).Random("x", {3, 4}, 1).Random("w", {5, 4}, 2).Random("dy", {3, 5}, 3);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ToDoubles(with_two.Run()[i]), ToDoubles(with_three.Run()[i]));
  const OpTest alone =
      OpTest("FCGradient", 1).Arg("no_bias", 1).Random("x", {3, 4}, 1).Random("w", {5, 4}, 2).Random("dy", {3, 5}, 3);
  EXPECT_EQ(ToDoubles(alone.Run()[0]), ToDoubles(with_three.Run()[0]));
}

TEST(FC, AcceptsNoElements) {
  OpTest("FC").Input("x", {0, 3}, {}).Random("w", {2, 3}, 1).Random("b", {2}, 2).Gives({0, 2}, {});
  OpTest("FC").Input("x", {2, 0}, {}).Input("w", {2, 0}, {}).Input("b", {2}, {1, 2}).Gives({2, 2}, {1, 2, 1, 2});
  const OpTest gradient = OpTest("FCGradient", 3).Input("x", {0, 3}, {}).Random("w", {2, 3}, 1).Input("dy", {0, 2}, {});
  gradient.Gives({2, 3}, std::vector<double>(6), 0);
  gradient.Gives({2}, {0, 0}, 1);
  gradient.Gives({0, 3}, {}, 2);
}

TEST(FC, RefusesShapesThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("FC").Random("x", {2, 3}, 1).Random("w", {3}, 2).Run();
      },
      "…shape mismatch: FC needs w [N, K], divided before axis_w = 1; w is float [3]");
  ExpectError(
      [] {
        OpTest("FC").Random("x", {2, 3}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3).Run();
      },
      "shape mismatch: FC needs x [M, K] and w [N, K], where K are the sizes of x from axis 1 on; "
      "x is float [2, 3] and w is float [5, 4]\n"
      "  at op 0 `output0 = FC(x, w, b)` with x float [2, 3], w float [5, 4], b float [5]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("FC").Random("x", {2, 4}, 1).Random("w", {5, 4}, 2).Random("b", {4}, 3).Run();
      },
      "shape mismatch: FC needs a bias of 5 elements, one an output; b is float [4]\n"
      "  at op 0 `output0 = FC(x, w, b)` with x float [2, 4], w float [5, 4], b float [4]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("FCTransposed").Random("x", {2, 3}, 1).Random("w", {4, 5}, 2).Random("b", {5}, 3).Run();
      },
      "…FCTransposed needs x [M, K] and w [K, N], where K are the sizes of x from axis 1 on; "
      "x is float [2, 3] and w is float [4, 5]\n");
  ExpectError(
      [] {
        OpTest("FCGradient", 3).Random("x", {2, 4}, 1).Random("w", {5, 4}, 2).Random("dy", {2, 4}, 3).Run();
      },
      "…FCGradient needs a gradient of the shape of y, [2, 5]; dy is float [2, 4]\n");
  ExpectError(
      [] {
        OpTest("FCGradient", 3).Random("x", {2, 4}, 1).Random("w", {5, 4}, 2).Random("dy", {5, 2}, 3).Run();
      },
      "…FCGradient needs a gradient of the shape of y, [2, 5]; dy is float [5, 2]\n");
  ExpectError(
      [] {
        OpTest("FC").Arg("axis", 2).Random("x", {2, 3}, 1).Random("w", {5, 4}, 2).Random("b", {5}, 3).Run();
      },
      "…axis");
}

TEST(FC, RefusesGradientsThatItDoesNotGive) {
  ExpectError(
      [] {
        OpTest("FCGradient", 1).Random("x", {1, 1}, 1).Random("w", {1, 1}, 2).Random("dy", {1, 1}, 3).Run();
      },
      "…FCGradient gives 2 or 3 gradients here, not 1");
  ExpectError(
      [] {
        OpTest("FCGradient", 3)
            .Arg("no_bias", 1)
            .Random("x", {1, 1}, 1)
            .Random("w", {1, 1}, 2)
            .Random("dy", {1, 1}, 3)
            .Run();
      },
      "…FCGradient gives 1 or 2 gradients here, not 3");
}

TEST(FC, RefusesOtherTypes) {
  ExpectError(
      [] {
        const Tensor x = Tensor::Of<std::int32_t>({1, 1}, {1});
        OpTest("FC").Input("x", x).Input("w", x).Input("b", Tensor::Of<std::int32_t>({1}, {1})).Run();
      },
      "…type mismatch: FC works on float and double; x is int32 [1, 1]\n");
}

}  // namespace
}  // namespace stepnet
