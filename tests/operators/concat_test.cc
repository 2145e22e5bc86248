#include <limits>
#include <random>

#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

using Ints = std::vector<std::int64_t>;

Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

TEST(Concat, JoinsAlongAnyAxis) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 30; ++trial) {
    const auto size = [&] { return static_cast<std::int64_t>(rng() % 4); };
    const std::int64_t before = size();
    const std::int64_t a = size();
    const std::int64_t b = size();
    const std::int64_t after = size();
    OpTest("Concat", 2)
        .Arg("axis", trial % 2 == 0 ? 1 : -2)
        .Random("a", {before, a, after}, trial)
        .Random("b", {before, b, after}, trial + 100)
        .Follows([=](const std::vector<std::vector<double>>& in) {
          std::vector<double> out;
          for (std::int64_t i = 0; i < before; ++i) {
            out.insert(out.end(), in[0].begin() + i * a * after, in[0].begin() + (i + 1) * a * after);
            out.insert(out.end(), in[1].begin() + i * b * after, in[1].begin() + (i + 1) * b * after);
          }
          return out;
        });
  }
}

TEST(Concat, WritesTheSizesThatItJoined) {
  const OpTest op = OpTest("Concat", 2).Random("a", {2, 3}, 1).Random("b", {2, 0}, 2).Random("c", {2, 4}, 3);  // axis 1
  op.GivesExactly(Int32s({3, 0, 4}), 1);
}

TEST(Concat, AddsAnAxis) {
  OpTest("Concat", 2)
      .Arg("axis", 1)
      .Arg("add_axis", 1)
      .Input("a", {2}, {1, 2})
      .Input("b", {2}, {3, 4})
      .Gives({2, 2}, {1, 3, 2, 4});
  OpTest("Concat", 2)
      .Arg("axis", -1)
      .Arg("add_axis", 1)
      .Input("a", {}, {1})
      .Input("b", {}, {3})
      .GivesExactly(Int32s({1, 1}), 1);
}

TEST(Concat, TakesTheChannelsOfImagesByOrder) {
  OpTest("Concat", 2)
      .Arg("order", "NHWC")
      .Input("a", {1, 1, 2, 1}, {1, 2})
      .Input("b", {1, 1, 2, 1}, {3, 4})
      .Gives({1, 1, 2, 2}, {1, 3, 2, 4});
}

TEST(Concat, JoinsStrings) {
  OpTest("Concat", 2)
      .Arg("axis", 0)
      .Input("a", Tensor::Of<std::string>({1}, {"a long string, beyond what fits in place"}))
      .Input("b", Tensor::Of<std::string>({2}, {"b", ""}))
      .GivesExactly(Tensor::Of<std::string>({3}, {"a long string, beyond what fits in place", "b", ""}));
}

TEST(Concat, GradientMatchesDifferences) {
  OpTest("Concat", 2).Arg("axis", 2).Random("a", {2, 2, 1}, 1).Random("b", {2, 2, 3}, 2).GradientMatches({0});
  OpTest("Concat", 2).Arg("axis", 0).Arg("add_axis", 1).Random("a", {3}, 1).Random("b", {3}, 2).GradientMatches({0});
  // The gradient of a Split is a Concat that has copied the argument split.
  OpTest("Concat", 2).Arg("axis", 0).Ints("split", {2, 1}).Random("a", {2}, 1).Random("b", {1}, 2).GradientMatches({0});
}

TEST(Concat, GradientOfOneBlobThatIsJoinedTwiceHasAPartForEach) {
  OperatorDef def;
  def.set_type("Concat");
  for (const char* name : {"x", "y", "x"}) def.add_input(name);
  for (const char* name : {"joined", "sizes"}) def.add_output(name);
  const OperatorGradient gradient = MakeGradient(def, {{.dense = "joined_grad"}, {}});
  ASSERT_EQ(gradient.ops.size(), 1u);
  const auto& parts = gradient.ops[0].output();
  EXPECT_EQ(std::vector<std::string>(parts.begin(), parts.end()),
            (std::vector<std::string>{"x_grad", "y_grad", "_x_grad_of_input_2"}));
  EXPECT_EQ(gradient.input_gradients[2].dense, "_x_grad_of_input_2");
}

TEST(Concat, AcceptsNoElements) { OpTest("Concat", 2).Random("a", {0, 3}, 1).Random("b", {0, 4}, 2).Gives({0, 7}, {}); }

TEST(Concat, KnowsItsSizesFromShapesAlone) {
  OperatorDef def;
  def.set_type("Concat");
  for (const char* name : {"a", "b"}) def.add_input(name);
  const OperatorCall op(def);
  const Tensor known = Tensor::Of<std::int64_t>({2}, {5, -1});
  const std::vector<TensorInfo> inputs = {{.dtype = DType::kInt64, .shape = {2}, .value = known},
                                          {.dtype = DType::kInt64, .shape = {2}, .value = known}};
  def.add_arg()->set_name("axis");
  def.mutable_arg(0)->set_i(0);
  const std::vector<TensorInfo> along0 = op.schema().shapes(ShapeQuery(OperatorCall(def), inputs));
  EXPECT_EQ(ToDoubles(along0[0].value), (std::vector<double>{5, -1, 5, -1}));
  EXPECT_EQ(ToDoubles(along0[1].value), (std::vector<double>{2, 2}));
}

TEST(Concat, RefusesInputsThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("Concat", 2).Random("a", {2, 3}, 1).Random("b", {3, 3}, 2).Run();
      },
      "shape mismatch: a is float [2, 3] and b is float [3, 3]; Concat needs inputs of one dtype that differ "
      "in size along one dimension only, here dimension 1\n"
      "  at op 0 `output0, output1 = Concat(a, b)` with a float [2, 3], b float [3, 3]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("Concat", 2).Random("a", {2, 3}, 1).Random("b", {2}, 2).Run();
      },
      "…a is float [2, 3] and b is float [2]; Concat needs");
  ExpectError(
      [] {
        OpTest("Concat", 2).Random("a", {2, 3}, 1).Input("b", Int32s({1})).Run();
      },
      "…type mismatch: a is float [2, 3] and b is int32 [1]; Concat needs inputs of one dtype\n");
  ExpectError([] { OpTest("Concat", 2).Random("a", {2}, 1).Run(); },
              "…invalid argument: axis is 1, but the tensor is [2] and has 1 dimension");
}

TEST(Split, GivesEqualPartsByDefault) {
  const OpTest op = OpTest("Split", 2).Arg("axis", 0).Input("x", {4}, {1, 2, 3, 4});
  op.Gives({2}, {1, 2}, 0);
  op.Gives({2}, {3, 4}, 1);
}

TEST(Split, TakesSizesFromTheArgumentOrAnInput) {
  const OpTest by_argument = OpTest("Split", 3).Ints("split", {1, 0, 2}).Input("x", {2, 3}, {1, 2, 3, 4, 5, 6});
  const OpTest by_input = OpTest("Split", 3).Input("x", {2, 3}, {1, 2, 3, 4, 5, 6}).Input("sizes", Int32s({1, 0, 2}));
  for (const OpTest& op : {by_argument, by_input}) {
    op.Gives({2, 1}, {1, 4}, 0);
    op.Gives({2, 0}, {}, 1);
    op.Gives({2, 2}, {2, 3, 5, 6}, 2);
  }
}

TEST(Split, UndoesConcat) {
  std::mt19937 rng(2);
  for (int trial = 0; trial < 20; ++trial) {
    const auto size = [&] { return static_cast<std::int64_t>(rng() % 4); };
    const Shape a({size(), size(), 2});
    const Shape b = a.With(1, size());
    const std::vector<Tensor> joined = OpTest("Concat", 2).Random("a", a, trial).Random("b", b, trial + 50).Run();
    const OpTest split = OpTest("Split", 2).Input("x", joined[0]).Input("sizes", joined[1]);
    split.GivesExactly(OpTest("Reshape", 2).Ints("shape", a.ToVector()).Random("a", a, trial).Run()[0], 0);
    split.GivesExactly(OpTest("Reshape", 2).Ints("shape", b.ToVector()).Random("b", b, trial + 50).Run()[0], 1);
  }
}

TEST(ConcatGradient, UndoesConcatByShapesAlone) {
  std::mt19937 rng(3);
  for (int trial = 0; trial < 20; ++trial) {
    const auto size = [&] { return static_cast<std::int64_t>(rng() % 4); };
    const Shape a({size(), size(), 2});
    const Shape b = a.With(1, size());
    const std::vector<Tensor> joined = OpTest("Concat", 2).Random("a", a, trial).Random("b", b, trial + 50).Run();
    const OpTest parts =
        OpTest("ConcatGradient", 2).Input("dy", joined[0]).Random("a", a, 7).Random("b", b, 8);  // other elements
    parts.GivesExactly(OpTest("Reshape", 2).Ints("shape", a.ToVector()).Random("a", a, trial).Run()[0], 0);
    parts.GivesExactly(OpTest("Reshape", 2).Ints("shape", b.ToVector()).Random("b", b, trial + 50).Run()[0], 1);
  }
  const OpTest drops = OpTest("ConcatGradient", 2).Arg("axis", -1).Arg("add_axis", 1).Input("dy", {2, 2}, {1, 2, 3, 4});
  OpTest(drops).Random("a", {2}, 1).Random("b", {2}, 2).Gives({2}, {1, 3}, 0);
  OpTest(drops).Random("a", {2}, 1).Random("b", {2}, 2).Gives({2}, {2, 4}, 1);
}

TEST(ConcatGradient, IsDifferentiable) {
  OpTest("ConcatGradient", 2)
      .Arg("axis", 1)
      .Random("dy", {2, 3, 2}, 1)
      .Random("a", {2, 1, 2}, 2)
      .Random("b", {2, 2, 2}, 3)
      .GradientMatches({}, {0});
}

TEST(ConcatGradient, RefusesWhatConcatDoesNotMake) {
  for (const Shape& b : {Shape({2, 1}), Shape({2, 3}), Shape({3, 2}), Shape({2}), Shape({2, 2, 1})}) {
    ExpectError(
        [&] {
          OpTest("ConcatGradient", 2).Random("dy", {2, 3}, 1).Random("a", {2, 1}, 2).Random("b", b, 3).Run();
        },
        "…shape mismatch: ConcatGradient needs the gradient of what Concat makes of its other inputs, and an output "
        "for each; dy is float [2, 3]\n");
  }
  ExpectError(
      [] {
        OpTest("ConcatGradient", 1).Random("dy", {2, 3}, 1).Random("a", {2, 1}, 2).Random("b", {2, 2}, 3).Run();
      },
      "…shape mismatch: ConcatGradient needs the gradient of what Concat makes of its other inputs, and an output "
      "for each; dy is float [2, 3]\n");
}

TEST(Split, DropsAnAxis) {
  const OpTest op = OpTest("Split", 2).Arg("axis", 1).Arg("add_axis", 1).Input("x", {2, 2}, {1, 2, 3, 4});
  op.Gives({2}, {1, 3}, 0);
  op.Gives({2}, {2, 4}, 1);
}

TEST(Split, GradientMatchesDifferences) {
  OpTest("Split", 2).Arg("axis", 1).Ints("split", {1, 2}).Random("x", {2, 3, 2}, 1).GradientMatches();
  OpTest("Split", 2).Arg("axis", 0).Arg("add_axis", 1).Random("x", {2, 3}, 1).GradientMatches();
}

TEST(Split, GradientCountsPartsThatNobodyDifferentiatesAsZero) {
  OpTest("Split", 3).Arg("axis", 1).Ints("split", {1, 2, 1}).Random("x", {2, 4}, 1).GradientMatches({1});
}

TEST(Split, AcceptsNoElements) { OpTest("Split", 2).Arg("axis", 1).Random("x", {0, 4}, 1).Gives({0, 2}, {}, 1); }

TEST(Split, RefusesSizesThatDoNotAddUp) {
  ExpectError(
      [] {
        OpTest("Split", 2).Random("x", {2, 3}, 1).Run();
      },
      "shape mismatch: x is float [2, 3]; dimension 1 cannot be split into 2 equal parts\n"
      "  at op 0 `output0, output1 = Split(x)` with x float [2, 3]\n"
      "  in net \"test\"");
  const auto split = [](const std::vector<std::int32_t>& sizes) {
    OpTest("Split", 2).Random("x", {2, 3}, 1).Input("sizes", Int32s(sizes)).Run();
  };
  const char* rule = "; Split needs 2 sizes that add up to dimension 1 of x, which is float [2, 3]";
  ExpectError([&] { split({4, -1}); }, StrCat("…the sizes of the parts are [4, -1]", rule));
  ExpectError([&] { split({-1, 4}); }, StrCat("…the sizes of the parts are [-1, 4]", rule));
  ExpectError([&] { split({1, 1}); }, StrCat("…the sizes of the parts are [1, 1]", rule));
  ExpectError([&] { split({1, 1, 1}); }, StrCat("…the sizes of the parts are [1, 1, 1]", rule));
  ExpectError(
      [] {
        OpTest("Split", 2).Ints("split", {-1, 4}).Random("x", {2, 3}, 1).Run();
      },
      "…Split: split is -1, must be at least 0");
  ExpectError(
      [] {
        constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();  // 2^64 more than there are
        OpTest("Split", 3).Ints("split", {kMax, kMax, 5}).Random("x", {2, 3}, 1).Run();
      },
      "…the sizes of the parts are [9223372036854775807, 9223372036854775807, 5]; Split needs 3 sizes that add up");
  ExpectError(
      [] {
        OpTest("Split", 2).Ints("split", {1, 2}).Random("x", {2, 3}, 1).Input("s", Int32s({1, 2})).Run();
      },
      "…Split has its sizes both as an input and as the argument split");
}

}  // namespace
}  // namespace stepnet
