#include <algorithm>
#include <numeric>
#include <random>

#include "op_test.h"

namespace stepnet {
namespace {

// Each element of y is fetched by its own coordinates.
std::vector<double> Reference(const std::vector<double>& x, const Shape& shape, const std::vector<std::int64_t>& axes) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i);
    std::int64_t from = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      const int axis = static_cast<int>(axes[static_cast<size_t>(d)]);
      from += rest % shape[axis] * shape.SizeFrom(axis + 1);
      rest /= shape[axis];
    }
    y[i] = x[static_cast<size_t>(from)];
  }
  return y;
}

TEST(Transpose, ReordersAnyDimensions) {
  std::mt19937 rng(4);
  for (int trial = 0; trial < 150; ++trial) {
    const int rank = static_cast<int>(rng() % 6);
    std::vector<std::int64_t> axes(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), rng);
    std::vector<std::int64_t> sizes;
    for (int d = 0; d < rank; ++d) sizes.push_back(static_cast<std::int64_t>(rng() % (rank < 4 ? 20 : 4)));
    const Shape shape(sizes);
    OpTest("Transpose")
        .Ints("axes", axes)
        .Random("x", shape, trial)
        .Follows([&](const std::vector<std::vector<double>>& in) { return Reference(in[0], shape, axes); });
  }
}

TEST(Transpose, ReversesByDefault) {
  OpTest("Transpose").Input("x", {2, 3}, {1, 2, 3, 4, 5, 6}).Gives({3, 2}, {1, 4, 2, 5, 3, 6});
  EXPECT_EQ(OpTest("Transpose").Random("x", {2, 3, 4}, 1).Run()[0].shape(), Shape({4, 3, 2}));
}

TEST(Transpose, MovesEveryDType) {
  const Shape from({2, 3});
  const Shape to({3, 2});
  const auto check = [&](const Tensor& x, const Tensor& y) { OpTest("Transpose").Input("x", x).GivesExactly(y); };
  check(Tensor::Of<bool>(from, {true, false, true, false, false, true}),
        Tensor::Of<bool>(to, {true, false, false, false, true, true}));
  check(Tensor::Of<std::int32_t>(from, {1, 2, 3, 4, 5, 6}), Tensor::Of<std::int32_t>(to, {1, 4, 2, 5, 3, 6}));
  check(Tensor::Of<std::string>(from, {"1", "2", "3", "4", "5", "6"}),
        Tensor::Of<std::string>(to, {"1", "4", "2", "5", "3", "6"}));
  const Tensor shorts = OpTest("Transpose").Input("x", Tensor::Of<std::int16_t>(from, {1, 2, 3, 4, 5, 6})).Run()[0];
  EXPECT_EQ(std::vector<std::int16_t>(shorts.data<std::int16_t>(), shorts.data<std::int16_t>() + 6),
            (std::vector<std::int16_t>{1, 4, 2, 5, 3, 6}));
}

TEST(Transpose, GradientMatchesDifferences) {
  OpTest("Transpose").Ints("axes", {1, 2, 0}).Random("x", {2, 3, 2}, 1).GradientMatches();
  OpTest("Transpose").Random("x", {2, 3, 2}, 1).GradientMatches();
}

TEST(Transpose, AcceptsNoElements) {
  OpTest("Transpose").Ints("axes", {1, 2, 0}).Input("x", {2, 0, 3}, {}).Gives({0, 3, 2}, {});
}

TEST(Transpose, RefusesAxesThatAreNoOrder) {
  ExpectError(
      [] {
        OpTest("Transpose").Ints("axes", {1, 1}).Random("x", {2, 3}, 1).Run();
      },
      "invalid net: axes is [1, 1], must hold each of 0 to 1 once\n"
      "  at op 0 `output0 = Transpose(x)`\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("Transpose").Ints("axes", {0, 2}).Random("x", {2, 3}, 1).Run();
      },
      "…axes is [0, 2], must hold each of 0 to 1 once");
  ExpectError(
      [] {
        OpTest("Transpose").Ints("axes", {1, 0, 2}).Random("x", {2, 3}, 1).Run();
      },
      "…Transpose with axes [1, 0, 2] needs 3 dimensions; x is float [2, 3]");
}

}  // namespace
}  // namespace stepnet
