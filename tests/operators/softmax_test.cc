// Softmax and LogSoftmax.
#include <algorithm>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

using Values = std::vector<std::vector<double>>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Softmax(const std::vector<double>& x, int row_size, bool is_log) {
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += row_size) {
    double sum = 0;
    for (int i = 0; i < row_size; ++i) sum += std::exp(x[begin + i]);
    for (int i = 0; i < row_size; ++i) {
      y[begin + i] = is_log ? x[begin + i] - std::log(sum) : std::exp(x[begin + i]) / sum;
    }
  }
  return y;
}

TEST(Softmax, FollowsItsFormula) {
  for (const int size : {1, 3, 16, 65}) {
    for (const bool is_log : {false, true}) {
      OpTest(is_log ? "LogSoftmax" : "Softmax")
          .RandomIn("x", {4, size}, size, -5, 5)
          .Follows([&](const Values& in) { return Softmax(in[0], size, is_log); }, 0, 2e-6);
    }
  }
}

TEST(Softmax, CutsTheShapeAtItsAxis) {
  const auto over = [](int size) { return [=](const Values& in) { return Softmax(in[0], size, false); }; };
  OpTest("Softmax").Random("x", {2, 3, 4}, 1).Follows(over(12));
  OpTest("Softmax").Arg("axis", 2).Random("x", {2, 3, 4}, 1).Follows(over(4));
  OpTest("Softmax").Arg("axis", -1).Random("x", {2, 3, 4}, 1).Follows(over(4));
  OpTest("Softmax").Arg("axis", 0).Random("x", {2, 3}, 1).Follows(over(6));
  EXPECT_EQ(OpTest("Softmax").Arg("axis", 2).Random("x", {2, 3, 4}, 1).Run()[0].shape(), Shape({2, 3, 4}));
}

TEST(Softmax, GradientMatchesDifferences) {
  for (const char* type : {"Softmax", "LogSoftmax"}) {
    OpTest(type).Random("x", {3, 5}, 1).GradientMatches();
    OpTest(type).Arg("axis", 2).Random("x", {2, 2, 19}, 1).GradientMatches();
    OpTest(type).Arg("axis", 0).Random("x", {2, 3}, 1).GradientMatches();
  }
}

TEST(Softmax, DoesNotOverflow) {
  OpTest("Softmax").Input("x", {2, 2}, {1000, 1000, -1000, 0}).Gives({2, 2}, {0.5, 0.5, 0, 1});
  OpTest("LogSoftmax")
      .Input("x", {2, 2}, {1000, 1000, -1000, 0})
      .Gives({2, 2}, {-0.6931471805599453, -0.6931471805599453, -1000, 0});
  OpTest("Softmax").Input("x", {1, 3}, {-kInfinity, 0, -kInfinity}).Gives({1, 3}, {0, 1, 0});
  OpTest("Softmax").Input("x", {2, 2}, {kNaN, 0, 0, 0}).Gives({2, 2}, {kNaN, kNaN, 0.5, 0.5});
}

TEST(Softmax, AcceptsNoElements) {
  for (const char* type : {"Softmax", "LogSoftmax"}) {
    for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}}) {
      OpTest(type).Input("x", shape, {}).Gives(shape, {});
      OpTest(type).Input("x", shape, {}).GradientMatches();
    }
  }
}

TEST(Softmax, RefusesBadInput) {
  ExpectError([] { OpTest("Softmax").Arg("axis", 2).Random("x", {2, 3}, 1).Run(); }, "…axis");
  ExpectError(
      [] {
        OpTest("Softmax").Input("x", Tensor::Of<std::int32_t>({1, 1}, {1})).Run();
      },
      "type mismatch: Softmax works on float, double, float16 and bfloat16; x is int32 [1, 1]\n"
      "  at op 0 `output0 = Softmax(x)` with x int32 [1, 1]\n"
      "  in net \"test\"");
}

}  // namespace
}  // namespace stepnet
