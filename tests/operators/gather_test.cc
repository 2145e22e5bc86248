#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

Tensor Indices(const Shape& shape, const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>(shape, values);
}

TEST(Gather, TakesRows) {
  OpTest("Gather")
      .Input("data", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Input("indices", Indices({2, 2}, {2, 0, 0, 1}))
      .Gives({2, 2, 2}, {5, 6, 1, 2, 1, 2, 3, 4});
  OpTest("Gather")
      .Input("data", Tensor::Of<std::string>({2}, {"a", "b"}))
      .Input("indices", Tensor::Of<std::int32_t>({}, {1}))
      .GivesExactly(Tensor::Of<std::string>({}, {"b"}));
}

TEST(Gather, AcceptsNoElements) {
  OpTest("Gather").Random("data", {3, 2}, 1).Input("indices", Indices({0}, {})).Gives({0, 2}, {});
  OpTest("Gather").Random("data", {0, 2}, 1).Input("indices", Indices({0}, {})).Gives({0, 2}, {});
  OpTest("Gather").Random("data", {3, 0}, 1).Input("indices", Indices({1}, {2})).Gives({1, 0}, {});
}

TEST(Gather, GradientIsSparse) {
  OperatorDef def;
  def.set_type("Gather");
  def.add_input("data");
  def.add_input("indices");
  def.add_output("y");
  const OperatorGradient gradient = MakeGradient(def, {{.dense = "dy"}});
  EXPECT_TRUE(gradient.ops.empty());
  EXPECT_EQ(gradient.input_gradients[0].indices, "indices");
  EXPECT_EQ(gradient.input_gradients[0].values, "dy");
}

TEST(Gather, DenseGradientMatchesDifferences) {
  OpTest("Gather")
      .Arg("dense_gradient", 1)
      .Random("data", {4, 2}, 1)
      .Input("indices", Indices({2, 2}, {3, 0, 3, 1}))
      .GradientMatches();
}

TEST(Gather, RefusesIndicesOutOfRange) {
  const auto gather = [](const Tensor& indices) {
    OpTest("Gather").Random("data", {3, 2}, 1).Input("i", indices).Run();
  };
  ExpectError(
      [&] {
        gather(Indices({2}, {0, 3}));
      },
      "invalid argument: Gather: element 1 of the indices is 3; the data have 3 rows\n"
      "  at op 0 `output0 = Gather(data, i)` with data float [3, 2], i int64 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { gather(Tensor::Of<std::int32_t>({1}, {-1})); }, "…element 0 of the indices is -1");
  ExpectError([&] { gather(Tensor::Of<float>({1}, {0})); }, "…Gather works on int32 and int64; i is float [1]");
  ExpectError([] { OpTest("Gather").Random("data", {}, 1).Input("i", Indices({1}, {0})).Run(); },
              "…Gather needs data [N, …]; data is float []");
}

TEST(SparseToDense, AddsRowsByIndex) {
  OpTest("SparseToDense")
      .Input("indices", Indices({3}, {2, 0, 2}))
      .Input("values", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Gives({3, 2}, {3, 4, 0, 0, 6, 8});
  OpTest("SparseToDense")
      .Input("indices", Indices({1}, {1}))
      .Input("values", {1}, {5})
      .Input("like", {3}, {0, 0, 0})
      .Gives({3}, {0, 5, 0});
  OpTest("SparseToDense").Input("indices", Indices({0}, {})).Input("values", {0, 2}, {}).Gives({0, 2}, {});
}

TEST(SparseToDense, GradientMatchesDifferences) {
  OpTest("SparseToDense").Input("indices", Indices({3}, {2, 0, 2})).Random("values", {3, 2}, 1).GradientMatches();
}

TEST(SparseToDense, RefusesWhatDoesNotFit) {
  const auto run = [](const Tensor& indices, const Shape& values, const Shape& like) {
    OpTest("SparseToDense").Input("i", indices).Random("v", values, 1).Random("like", like, 2).Run();
  };
  ExpectError(
      [&] {
        run(Indices({2}, {0, 1}), {3, 2}, {4, 2});
      },
      "…indices are int64 [2] and values float [3, 2], like is float [4, 2]; SparseToDense needs indices [I…], "
      "values [I…, R…] and like [N, R…]");
  ExpectError([&] { run(Indices({2}, {0, 1}), {2, 2}, {4, 3}); }, "…SparseToDense needs indices [I…]");
  ExpectError(
      [&] {
        run(Indices({2}, {0, 4}), {2, 2}, {4, 2});
      },
      "…SparseToDense: element 1 of the indices is 4; the data have 4 rows");
  ExpectError([] { OpTest("SparseToDense").Input("i", Indices({1}, {-5})).Random("v", {1}, 1).Run(); },
              "…SparseToDense: element 0 of the indices is -5; the least is 0");
  ExpectError([] { OpTest("SparseToDense").Input("i", Indices({1}, {INT64_MAX - 1})).Random("v", {1}, 1).Run(); },
              "…out of memory");
}

}  // namespace
}  // namespace stepnet
