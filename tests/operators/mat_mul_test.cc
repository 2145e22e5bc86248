// MatMul and BatchMatMul.
#include <array>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;

// a [m, k] times b [k, n], each at an offset and perhaps transposed in memory.
void Multiply(const Values& in, int a_at, int b_at, int m, int k, int n, bool trans_a, bool trans_b,
              std::vector<double>* y) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) {
        sum += in[0][a_at + (trans_a ? l * m + i : i * k + l)] * in[1][b_at + (trans_b ? j * k + l : l * n + j)];
      }
      y->push_back(sum);
    }
  }
}

TEST(MatMul, FollowsItsFormula) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const OpTest test = OpTest("MatMul")
                              .Arg("trans_a", trans_a ? 1 : 0)
                              .Arg("trans_b", trans_b ? 1 : 0)
                              .Random("a", trans_a ? Shape{4, 3} : Shape{3, 4}, 1)
                              .Random("b", trans_b ? Shape{5, 4} : Shape{4, 5}, 2);
      test.Follows([&](const Values& in) {
        std::vector<double> y;
        Multiply(in, 0, 0, 3, 4, 5, trans_a, trans_b, &y);
        return y;
      });
      EXPECT_EQ(test.Run()[0].shape(), Shape({3, 5}));
      test.GradientMatches();
    }
  }
}

// Those of many columns, or of many rows, are computed in blocks.
TEST(MatMul, FollowsItsFormulaInBlocks) {
  for (const auto& [m, k, n] : {std::array{2, 130, 515}, std::array{1543, 2, 3}}) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        OpTest("MatMul")
            .Arg("trans_a", trans_a ? 1 : 0)
            .Arg("trans_b", trans_b ? 1 : 0)
            .Random("a", trans_a ? Shape{k, m} : Shape{m, k}, 1)
            .Random("b", trans_b ? Shape{n, k} : Shape{k, n}, 2)
            .Follows([&, m = m, k = k, n = n](const Values& in) {
              std::vector<double> y;
              Multiply(in, 0, 0, m, k, n, trans_a, trans_b, &y);
              return y;
            });
      }
    }
  }
}

TEST(MatMul, CutsShapesAtItsAxes) {
  const OpTest test =
      OpTest("MatMul").Arg("axis_a", 2).Arg("axis_b", -1).Random("a", {3, 2, 4}, 1).Random("b", {2, 2, 5}, 2);
  EXPECT_EQ(test.Run()[0].shape(), Shape({6, 5}));
  test.Follows([&](const Values& in) {
    std::vector<double> y;
    Multiply(in, 0, 0, 6, 4, 5, false, false, &y);
    return y;
  });
  ExpectError([&] { test.GradientMatches(); }, "…MatMul has a gradient for axis_a = 1 and axis_b = 1 only");
}

TEST(MatMul, AcceptsNoElements) {
  OpTest("MatMul").Input("a", {0, 3}, {}).Random("b", {3, 2}, 1).Gives({0, 2}, {});
  OpTest("MatMul").Input("a", {2, 0}, {}).Input("b", {0, 2}, {}).Gives({2, 2}, {0, 0, 0, 0});
  OpTest("MatMul").Input("a", {2, 0}, {}).Input("b", {0, 2}, {}).GradientMatches();
}

TEST(MatMul, RefusesShapesThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("MatMul").Arg("trans_b", 1).Random("a", {3, 4}, 1).Random("b", {4, 5}, 2).Run();
      },
      "shape mismatch: MatMul needs a [M, K] and b [K, N]; a is float [3, 4] and b is float [4, 5] "
      "(transposed)\n"
      "  at op 0 `output0 = MatMul(a, b)` with a float [3, 4], b float [4, 5]\n"
      "  in net \"test\"");
  ExpectError([] { OpTest("MatMul").Random("a", {3}, 1).Random("b", {4, 5}, 2).Run(); }, "…axis_a");
}

TEST(BatchMatMul, FollowsItsFormula) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const Shape& outer : {Shape{}, Shape{3}, Shape{2, 1, 2}}) {
        const auto shape = [&](int rows, int columns, bool transposed) {
          return outer.Inserted(outer.rank(), transposed ? columns : rows)
              .Inserted(outer.rank() + 1, transposed ? rows : columns);
        };
        const OpTest test = OpTest("BatchMatMul")
                                .Arg("trans_a", trans_a ? 1 : 0)
                                .Arg("trans_b", trans_b ? 1 : 0)
                                .Random("a", shape(2, 4, trans_a), 1)
                                .Random("b", shape(4, 3, trans_b), 2);
        test.Follows([&](const Values& in) {
          std::vector<double> y;
          for (int i = 0; i < outer.size(); ++i) Multiply(in, i * 8, i * 12, 2, 4, 3, trans_a, trans_b, &y);
          return y;
        });
        EXPECT_EQ(test.Run()[0].shape(), shape(2, 3, false));
        test.GradientMatches();
      }
    }
  }
}

// `a_of` and `b_of`: which matrix of a and of b each product reads.
void ExpectBroadcast(const Shape& a, const Shape& b, const Shape& y, const std::vector<int>& a_of,
                     const std::vector<int>& b_of, bool trans_a = false) {
  const OpTest test =
      OpTest("BatchMatMul").Arg("broadcast", 1).Arg("trans_a", trans_a ? 1 : 0).Random("a", a, 1).Random("b", b, 2);
  EXPECT_EQ(test.Run()[0].shape(), y);
  test.Follows([&](const Values& in) {
    const int m = a.rank() == 1 ? 1 : static_cast<int>(trans_a ? a[-1] : a[-2]);
    const int k = static_cast<int>(b.rank() == 1 ? b[0] : b[-2]);
    const int n = b.rank() == 1 ? 1 : static_cast<int>(b[-1]);
    std::vector<double> values;
    for (size_t i = 0; i < a_of.size(); ++i)
      Multiply(in, a_of[i] * m * k, b_of[i] * k * n, m, k, n, trans_a, false, &values);
    return values;
  });
}

TEST(BatchMatMul, RepeatsWhatIsMissing) {
  ExpectBroadcast({3, 2, 4}, {4, 5}, {3, 2, 5}, {0, 1, 2}, {0, 0, 0});
  ExpectBroadcast({3, 4, 2}, {4, 5}, {3, 2, 5}, {0, 1, 2}, {0, 0, 0}, true);
  ExpectBroadcast({2, 4}, {3, 4, 5}, {3, 2, 5}, {0, 0, 0}, {0, 1, 2});
  ExpectBroadcast({2, 1, 2, 4}, {3, 4, 5}, {2, 3, 2, 5}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2});
  ExpectBroadcast({4}, {3, 4, 5}, {3, 5}, {0, 0, 0}, {0, 1, 2});
  ExpectBroadcast({3, 2, 4}, {4}, {3, 2}, {0, 1, 2}, {0, 0, 0});
  ExpectBroadcast({4}, {4}, {1}, {0}, {0});
}

TEST(BatchMatMul, HasGradientsOfRepeatedMatrices) {
  const std::vector<std::pair<Shape, Shape>> sizes = {{{3, 2, 4}, {3, 4, 5}},
                                                      {{3, 2, 4}, {1, 4, 5}},
                                                      {{1, 2, 4}, {3, 4, 5}},
                                                      {{3, 2, 4}, {4, 5}},
                                                      {{2, 1, 2, 4}, {3, 4, 5}}};
  const auto transposed = [](Shape shape, bool is) {
    const std::int64_t rows = shape[-2], columns = shape[-1];
    return is ? shape.With(shape.rank() - 2, columns).With(shape.rank() - 1, rows) : shape;
  };
  for (const auto& [a, b] : sizes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        OpTest("BatchMatMul")
            .Arg("broadcast", 1)
            .Arg("matrices", 1)
            .Arg("trans_a", trans_a ? 1 : 0)
            .Arg("trans_b", trans_b ? 1 : 0)
            .Random("a", transposed(a, trans_a), 1)
            .Random("b", transposed(b, trans_b), 2)
            .GradientMatches();
      }
    }
  }
}

TEST(BatchMatMul, AcceptsNoElements) {
  OpTest("BatchMatMul").Input("a", {0, 3, 2}, {}).Input("b", {0, 2, 4}, {}).Gives({0, 3, 4}, {});
  OpTest("BatchMatMul").Input("a", {2, 1, 0}, {}).Input("b", {2, 0, 1}, {}).Gives({2, 1, 1}, {0, 0});
  OpTest("BatchMatMul").Input("a", {0, 3, 2}, {}).Input("b", {0, 2, 4}, {}).GradientMatches();
}

TEST(BatchMatMul, RefusesShapesThatDoNotFit) {
  const auto run = [](const Shape& a, const Shape& b, int broadcast) {
    return [=] { OpTest("BatchMatMul").Arg("broadcast", broadcast).Random("a", a, 1).Random("b", b, 2).Run(); };
  };
  ExpectError(run({3, 2, 4}, {2, 4, 5}, 0),
              "shape mismatch: BatchMatMul needs outer dimensions that are equal or 1; a is float [3, 2, 4] and b is "
              "float [2, 4, 5]\n"
              "  at op 0 `output0 = BatchMatMul(a, b)` with a float [3, 2, 4], b float [2, 4, 5]\n"
              "  in net \"test\"");
  ExpectError(run({3, 2, 4}, {1, 4, 5}, 0), "…BatchMatMul needs equal outer dimensions, or broadcast = 1; ");
  ExpectError(run({3, 2, 4}, {4, 5}, 0),
              "…BatchMatMul needs a [..., M, K] and b [..., K, N] of one rank, or broadcast = 1; ");
  ExpectError(run({3, 2, 4}, {3, 5, 4}, 0), "…BatchMatMul needs a [..., M, K] and b [..., K, N]; ");
  ExpectError(run({3, 2, 4}, {2, 4, 5}, 1), "…BatchMatMul needs outer dimensions that are equal or 1; ");
  ExpectError(
      [] {
        OpTest("BatchMatMul").Arg("broadcast", 1).Arg("trans_a", 1).Random("a", {4}, 1).Random("b", {4, 5}, 2).Run();
      },
      "…BatchMatMul needs matrices, or vectors that are not transposed; a is float [4] (transposed) and ");
  ExpectError(
      [] {
        OpTest("BatchMatMul").Arg("broadcast", 1).Arg("matrices", 1).Random("a", {4}, 1).Random("b", {4, 5}, 2).Run();
      },
      "…BatchMatMul needs matrices, as it says; a is float [4] and ");
  ExpectError(
      [] {
        OpTest("BatchMatMul").Arg("broadcast", 1).Random("a", {2, 2}, 1).Random("b", {2, 2}, 2).GradientMatches();
      },
      "…BatchMatMul has no gradient with broadcast = 1, unless matrices = 1 says that it multiplies no vectors; "
      "ExpandDims makes a matrix of a vector");
}

}  // namespace
}  // namespace stepnet
