#include <algorithm>
#include <numeric>

#include "op_test.h"

namespace stepnet {
namespace {

Tensor Int64s(const Shape& shape, const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>(shape, values);
}

OpTest TopKOf(int k, int num_outputs = 2) { return OpTest("TopK", num_outputs).Arg("k", k); }

TEST(TopK, FindsTheGreatest) {
  const OpTest op = TopKOf(2, 3).Input("x", {2, 3}, {1, 3, 2, 5, 4, 5});
  op.Gives({2, 2}, {3, 2, 5, 5}, 0);
  op.GivesExactly(Int64s({2, 2}, {1, 2, 0, 2}), 1);
  op.GivesExactly(Int64s({4}, {1, 2, 3, 5}), 2);
}

TEST(TopK, FollowsASort) {
  TopKOf(4).Random("x", {3, 7}, 1).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> out;
    for (size_t i = 0; i < 3; ++i) {
      std::vector<double> row(in[0].begin() + i * 7, in[0].begin() + (i + 1) * 7);
      std::ranges::sort(row, std::greater<>());
      out.insert(out.end(), row.begin(), row.begin() + 4);
    }
    return out;
  });
}

TEST(TopK, LooksAlongAnyDimension) {
  const OpTest op = TopKOf(1).Arg("axis", 0).Input("x", {2, 3}, {1, 3, 2, 5, 4, 1});
  op.Gives({1, 3}, {5, 4, 2}, 0);
  op.GivesExactly(Int64s({1, 3}, {1, 1, 0}), 1);
}

TEST(TopK, FillsUpWhatIsMissing) {
  const OpTest op = TopKOf(3).Input("x", {2}, {-1, -2});
  op.Gives({3}, {-1, -2, 0}, 0);
  op.GivesExactly(Int64s({3}, {0, 1, -1}), 1);
}

TEST(TopK, PutsNaNFirst) {
  TopKOf(2).Input("x", {4}, {1, std::nan(""), 2, std::nan("")}).GivesExactly(Int64s({2}, {1, 3}), 1);
}

TEST(TopK, GradientMatchesDifferences) {
  TopKOf(2).Random("x", {3, 4}, 1).GradientMatches({0});
  TopKOf(3).Arg("axis", 1).Random("x", {2, 4, 2}, 1).GradientMatches({0});
  TopKOf(3).Random("x", {2, 2}, 1).GradientMatches({0});
}

TEST(TopK, AcceptsNoElements) { TopKOf(2).Input("x", {0, 4}, {}).Gives({0, 2}, {}); }

TEST(TopK, RefusesBadInputs) {
  ExpectError([] { TopKOf(0).Random("x", {2}, 1).Run(); }, "…TopK: k is 0, must be at least 1");
  ExpectError([] { TopKOf(1).Random("x", {}, 1).Run(); }, "…axis is -1, but the tensor is []");
  const auto gradient = [](const Tensor& indices) {
    OpTest("TopKGradient").Arg("k", 1).Random("dy", {1}, 1).Input("i", indices).Random("x", {3}, 1).Run();
  };
  ExpectError([&] { gradient(Int64s({1}, {3})); }, "…element 0 of the indices is 3; the dimension is of size 3");
  ExpectError([&] { gradient(Int64s({1}, {-2})); }, "…element 0 of the indices is -2");
  ExpectError(
      [&] {
        gradient(Int64s({2}, {0, 1}));
      },
      "…TopKGradient needs dvalues and int64 indices [1]; dy is float [1], i is int64 [2] and x is float [3]");
}

TEST(ArgMax, FindsTheFirstGreatest) {
  OpTest("ArgMax").Input("x", {2, 3}, {1, 3, 3, 5, 4, 5}).GivesExactly(Int64s({2, 1}, {1, 0}));
  OpTest("ArgMax")
      .Arg("axis", 0)
      .Arg("keepdims", 0)
      .Input("x", {2, 3}, {1, 3, 3, 5, 4, 2})
      .GivesExactly(Int64s({3}, {1, 1, 0}));
  OpTest("ArgMax").Input("x", {3}, {1, std::nan(""), 3}).GivesExactly(Int64s({1}, {1}));
  OpTest("ArgMax").Input("x", {0, 3}, {}).GivesExactly(Int64s({0, 1}, {}));
  ExpectError(
      [] {
        OpTest("ArgMax").Input("x", {2, 0}, {}).Run();
      },
      "…ArgMax finds nothing along dimension 1 of size 0; x is float [2, 0]");
}

TEST(ArgMin, FindsTheFirstLeast) {
  OpTest("ArgMin").Input("x", {2, 3}, {3, 1, 1, 4, 4, 5}).GivesExactly(Int64s({2, 1}, {1, 0}));
  OpTest("ArgMin").Input("x", {3}, {1, std::nan(""), 0}).GivesExactly(Int64s({1}, {1}));
}

TEST(Accuracy, CountsLabelsAmongTheGreatest) {
  const Tensor labels = Tensor::Of<std::int32_t>({4}, {0, 1, 2, 2});
  const std::vector<double> x = {3, 2, 1, 3, 2, 1, 3, 2, 1, 5, 5, 5};
  OpTest("Accuracy").Input("x", {4, 3}, x).Input("labels", labels).Gives({}, {0.25});
  OpTest("Accuracy").Arg("top_k", 2).Input("x", {4, 3}, x).Input("labels", labels).Gives({}, {0.5});
  OpTest("Accuracy").Arg("top_k", 9).Input("x", {4, 3}, x).Input("labels", labels).Gives({}, {1});
  OpTest("Accuracy").Input("x", {0, 3}, {}).Input("labels", Tensor::Of<std::int32_t>({0}, {})).Gives({}, {0});
}

TEST(Accuracy, RefusesBadLabels) {
  ExpectError(
      [] {
        OpTest("Accuracy").Random("x", {2, 3}, 1).Input("labels", Tensor::Of<std::int32_t>({2}, {0, 3})).Run();
      },
      "invalid argument: label 1 is 3; there are classes 0 to 2\n"
      "  at op 0 `output0 = Accuracy(x, labels)` with x float [2, 3], labels int32 [2]\n"
      "  in net \"test\"");
  ExpectError([] { OpTest("Accuracy").Random("x", {3}, 1).Input("l", Tensor::Of<std::int32_t>({1}, {0})).Run(); },
              "…Accuracy needs x [N, D]; x is float [3]");
}

}  // namespace
}  // namespace stepnet
