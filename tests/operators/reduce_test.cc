#include <algorithm>

#include "op_test.h"
#include "reduction_case.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

const std::vector<ReductionCase> kCases = {
    {{2, 3}, {}, {1, 1}, {}},
    {{2, 3}, {0}, {1, 3}, {3}},
    {{2, 3}, {1}, {2, 1}, {2}},
    {{2, 3}, {-1}, {2, 1}, {2}},
    {{2, 3, 4}, {1}, {2, 1, 4}, {2, 4}},
    {{2, 3, 4}, {0, 2}, {1, 3, 1}, {3}},
    {{2, 3, 4}, {1, 2}, {2, 1, 1}, {2}},
    {{2, 3, 2, 3}, {1, 3}, {2, 1, 2, 1}, {2, 2}},
    {{2, 3, 2, 3}, {2, 0}, {1, 3, 1, 3}, {3, 3}},
    {{2, 3, 2, 3, 2}, {1, 3}, {2, 1, 2, 1, 2}, {2, 2, 2}},  // more runs than a region has dimensions
    {{}, {}, {}, {}},
    {{4}, {0}, {1}, {}},
};

// Sums element by element, by their indices.
std::vector<double> ReferenceSum(const ReductionCase& c, const std::vector<double>& x, bool average) {
  std::vector<double> y(static_cast<size_t>(c.kept.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i);
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (int d = c.x.rank() - 1; d >= 0; --d) {
      const std::int64_t at = rest % c.x[d];
      rest /= c.x[d];
      if (c.kept[d] == 1) continue;
      index += at * stride;
      stride *= c.kept[d];
    }
    y[static_cast<size_t>(index)] += x[i];
  }
  if (average) {
    for (double& sum : y) sum /= static_cast<double>(x.size() / y.size());
  }
  return y;
}

TEST(Reduce, FollowsItsFormula) {
  for (const ReductionCase& c : kCases) {
    for (const bool average : {false, true}) {
      for (const int keep : {0, 1}) {
        SCOPED_TRACE(StrCat(c.x, " over ", Join(c.axes, ", ")));
        const OpTest test =
            OpTest(average ? "ReduceMean" : "ReduceSum").Ints("axes", c.axes).Arg("keepdims", keep).Random("x", c.x, 1);
        test.Follows([&](const auto& in) { return ReferenceSum(c, in[0], average); });
        EXPECT_EQ(test.Run()[0].shape(), keep != 0 ? c.kept : c.squeezed);
        test.GradientMatches();
      }
    }
  }
}

// The order of RowSum, so that a region that computes the sum gives the same bits.
template <typename T>
T SumOfRow(const T* x, std::int64_t n) {
  T sums[64] = {};
  for (std::int64_t i = 0; i < n; ++i) sums[i % 64] += x[i];
  for (int width = 32; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

template <typename T>
void ExpectSumsOfRows() {
  constexpr DType kDType = kDTypeOf<T>;
  for (const std::int64_t columns : {1, 3, 64, 200, 5000}) {
    const OpTest sum = OpTest("ReduceSum").Ints("axes", {2, 1}).Random("x", {3, columns, 2}, 1);
    const OpTest mean = OpTest("ReduceMean").Ints("axes", {-1}).Random("x", {3, 2 * columns}, 1);
    const Tensor sums = sum.Run(kDType)[0], means = mean.Run(kDType)[0],
                 x = OpTest("Copy").Random("x", {6 * columns}, 1).Run(kDType)[0];
    for (int row = 0; row < 3; ++row) {
      const T want = SumOfRow(x.data<T>() + row * 2 * columns, 2 * columns);
      EXPECT_EQ(sums.data<T>()[row], want);
      EXPECT_EQ(means.data<T>()[row], want * (T{1} / static_cast<T>(2 * columns)));
    }
  }
}

TEST(Reduce, OverTheLastDimensionsSumsRows) {
  ExpectSumsOfRows<float>();
  ExpectSumsOfRows<double>();
}

// Over the last dimensions by its formula, over others by its expansion.
TEST(Reduce, IsARegionWithinWhatTheFirstDimensionHasApart) {
  for (const ReductionCase& c : kCases) {
    OperatorDef def = ParseOp("y = ReduceSum(x)");
    AddInts(&def, "axes", c.axes);
    const OperatorCall op(def);
    const TensorInfo x{.dtype = DType::kFloat, .shape = c.x};
    const bool is_of_rows = c.axes.empty() || c.axes.back() == -1 || c.axes == std::vector<std::int64_t>{1, 2} ||
                            (c.axes.back() == c.x.rank() - 1 && c.axes.size() == 1);
    const bool is_within =
        c.axes == std::vector<std::int64_t>{1} || (c.x.rank() == 4 && c.axes == std::vector<std::int64_t>{1, 3});
    EXPECT_EQ(FormulaApplies(ShapeQuery(op, {&x, 1}), {}), is_of_rows);
    EXPECT_EQ(FindParts(ShapeQuery(op, {&x, 1}))->parts.size(), is_of_rows || is_within ? 1u : 0u)
        << c.x << " over " << Join(c.axes, ", ");
  }
}

TEST(Reduce, AcceptsNoElements) {
  for (const char* type : {"ReduceSum", "ReduceMean"}) {
    OpTest(type).Ints("axes", {0}).Input("x", {0, 2}, {}).Gives({1, 2}, {0, 0});
    OpTest(type).Ints("axes", {1}).Input("x", {2, 0}, {}).Gives({2, 1}, {0, 0});
    OpTest(type).Ints("axes", {1}).Input("x", {0, 2}, {}).Gives({0, 1}, {});
    OpTest(type).Ints("axes", {1}).Input("x", {0, 2}, {}).GradientMatches();
    OpTest(type).Ints("axes", {1}).Input("x", {2, 0}, {}).GradientMatches();
    constexpr std::int64_t kHuge = std::int64_t{1} << 50;
    OpTest(type).Ints("axes", {0, 2}).Input("x", {kHuge, 2, 0}, {}).Gives({1, 2, 1}, {0, 0});
    OpTest(type).Ints("axes", {1}).Input("x", {kHuge, 2, 0}, {}).Gives({kHuge, 1, 0}, {});
  }
}

TEST(Reduce, RefusesBadInput) {
  ExpectError(
      [] {
        OpTest("ReduceSum").Ints("axes", {2}).Random("x", {2, 3}, 1).Run();
      },
      "…invalid argument: axes is 2, but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([] { OpTest("ReduceMean").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: ReduceMean works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = ReduceMean(x)` with x int32 [1]\n"
              "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("ReduceSumGradient").Random("dy", {2}, 1).Random("x", {2, 3}, 1).Random("y", {1}, 1).Run();
      },
      "…shape mismatch: ReduceSumGradient needs a dy of 1 elements; dy is float [2] and x is float [2, 3]\n");
}

}  // namespace
}  // namespace stepnet
