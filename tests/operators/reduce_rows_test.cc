#include <algorithm>
#include <cmath>
#include <limits>

#include "op_test.h"
#include "reduction_case.h"

namespace stepnet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double GreatestOf(const std::vector<double>& row) { return *std::ranges::max_element(row); }
double LeastOf(const std::vector<double>& row) { return *std::ranges::min_element(row); }
double MagnitudesOf(const std::vector<double>& row) {
  double sum = 0;
  for (const double x : row) sum += std::abs(x);
  return sum;
}
double LengthOf(const std::vector<double>& row) {
  double squares = 0;
  for (const double x : row) squares += x * x;
  return std::sqrt(squares);
}

struct Reduction {
  const char* type;
  double (*of_row)(const std::vector<double>&);
};
constexpr Reduction kReductions[] = {
    {"ReduceMax", GreatestOf}, {"ReduceMin", LeastOf}, {"ReduceL1", MagnitudesOf}, {"ReduceL2", LengthOf}};

const std::vector<ReductionCase> kCases = {
    {{2, 3}, {}, {1, 1}, {}},
    {{2, 3}, {1}, {2, 1}, {2}},
    {{4, 300}, {-1}, {4, 1}, {4}},
    {{2, 3, 4}, {2, 1}, {2, 1, 1}, {2}},
    {{2, 2, 2, 2, 3}, {-1}, {2, 2, 2, 2, 1}, {2, 2, 2, 2}},
    {{}, {}, {}, {}},
    {{4}, {0}, {1}, {}},
};

TEST(ReduceRows, FollowsItsEquation) {
  for (const auto& [type, of_row] : kReductions) {
    for (const ReductionCase& c : kCases) {
      for (const int keep : {0, 1}) {
        SCOPED_TRACE(StrCat(type, " of ", c.x, " over ", Join(c.axes, ", ")));
        const OpTest test = OpTest(type).Ints("axes", c.axes).Arg("keepdims", keep).Random("x", c.x, 1, {0});
        test.Follows([&](const auto& in) {
          const auto size = static_cast<std::ptrdiff_t>(c.x.size() / c.kept.size());
          std::vector<double> y;
          for (auto begin = in[0].begin(); begin != in[0].end(); begin += size)
            y.push_back(of_row({begin, begin + size}));
          return y;
        });
        EXPECT_EQ(test.Run()[0].shape(), keep != 0 ? c.kept : c.squeezed);
        test.GradientMatches();
      }
    }
  }
}

TEST(ReduceRows, OfNoElements) {
  const auto gives = [](const char* type, float value) {
    const Tensor y = OpTest(type).Ints("axes", {1}).Input("x", {2, 0}, {}).Run()[0];
    ASSERT_EQ(y.shape(), Shape({2, 1}));
    EXPECT_EQ(y.data<float>()[0], value) << type;
    EXPECT_EQ(y.data<float>()[1], value) << type;
    OpTest(type).Ints("axes", {1}).Input("x", {0, 2}, {}).Gives({0, 1}, {});
    OpTest(type).Ints("axes", {1}).Input("x", {2, 0}, {}).GradientMatches();
  };
  gives("ReduceMax", -kInfinity);
  gives("ReduceMin", kInfinity);
  gives("ReduceL1", 0);
  gives("ReduceL2", 0);
}

TEST(ReduceRows, KeepsNaN) {
  for (const auto& [type, of_row] : kReductions) {
    const Tensor y = OpTest(type).Ints("axes", {1}).Input("x", {2, 2}, {NAN, 1, 2, NAN}).Run()[0];
    EXPECT_TRUE(std::isnan(y.data<float>()[0]) && std::isnan(y.data<float>()[1])) << type;
  }
}

OpTest GradientOf(const char* type, const std::vector<double>& x, double y) {
  OpTest test(StrCat(type, "Gradient"));
  test.Ints("axes", {1}).Input("x", {1, static_cast<std::int64_t>(x.size())}, x).Input("y", {1, 1}, {y});
  return test.Input("dy", {1, 1}, {2});
}

TEST(ReduceRows, GivesTheGradientToEachOfEqualExtrema) {
  GradientOf("ReduceMax", {3, 1, 3}, 3).Gives({1, 3}, {2, 0, 2});
  GradientOf("ReduceMin", {3, 1, 1}, 1).Gives({1, 3}, {0, 2, 2});
}

TEST(ReduceRows, GradientOfLengthsIs0At0) {
  GradientOf("ReduceL2", {0, 0}, 0).Gives({1, 2}, {0, 0});
  GradientOf("ReduceL2", {3, -4}, 5).Gives({1, 2}, {1.2, -1.6});
  OpTest("ReduceL1Gradient")
      .Ints("axes", {1})
      .Input("x", {1, 3}, {0, -2, 5})
      .Input("dy", {1}, {2})
      .Gives({1, 3}, {0, -2, 2});
}

TEST(ReduceRows, RefusesOtherDimensions) {
  ExpectError(
      [] {
        OpTest("ReduceMax").Ints("axes", {0}).Random("x", {2, 3}, 1).Run();
      },
      "invalid argument: ReduceMax reduces the last dimensions alone, and axes are 0; Transpose puts others "
      "there; x is float [2, 3]\n"
      "  at op 0 `output0 = ReduceMax(x)` with x float [2, 3]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("ReduceL2").Ints("axes", {2}).Random("x", {2, 3}, 1).Run();
      },
      "…invalid argument: axes is 2, but the tensor is [2, 3] and has 2 dimensions");
  ExpectError([] { OpTest("ReduceMin").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…type mismatch: ReduceMin works on float, double, float16 and bfloat16; x is int32 [1]\n");
}

}  // namespace
}  // namespace stepnet
