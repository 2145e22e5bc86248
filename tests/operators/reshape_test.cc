#include "op_test.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

Tensor Int64s(const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}
Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

OpTest ReshapeTo(const std::vector<std::int64_t>& sizes, const Shape& x) {
  return OpTest("Reshape", 2).Ints("shape", sizes).Random("x", x, 1);
}

void ExpectShape(const OpTest& op, const Shape& expected) { EXPECT_EQ(op.Run()[0].shape(), expected); }

TEST(Reshape, KeepsTheElements) {
  const OpTest op = OpTest("Reshape", 2).Ints("shape", {3, 2}).Input("x", {2, 3}, {1, 2, 3, 4, 5, 6});
  op.Gives({3, 2}, {1, 2, 3, 4, 5, 6});
  op.GivesExactly(Int64s({2, 3}), 1);
}

TEST(Reshape, ResolvesZeroAndMinusOne) {
  ExpectShape(ReshapeTo({0, -1}, {2, 3, 4}), {2, 12});
  ExpectShape(ReshapeTo({1, -1, 4}, {2, 3, 4}), {1, 6, 4});
  ExpectShape(ReshapeTo({-1}, {}), {1});
  ExpectShape(ReshapeTo({}, {1, 1}), {});
}

TEST(Reshape, ResolvesMinusOneWithoutElements) {
  ExpectShape(ReshapeTo({0, -1}, {0, 3, 4}), {0, 12});  // no steps
  ExpectShape(ReshapeTo({1, -1, 4}, {2, 0, 4}), {1, 0, 4});
  ExpectShape(ReshapeTo({0, 0, 2, -1}, {0, 3, 4}), {0, 3, 2, 2});
}

TEST(Reshape, TakesTheShapeFromAnInput) {
  const OpTest op = OpTest("Reshape", 2).Input("x", {2, 3}, {1, 2, 3, 4, 5, 6}).Input("new_shape", Int32s({-1, 1, 3}));
  op.Gives({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  op.GivesExactly(Int32s({2, 3}), 1);
}

TEST(Reshape, RestoresAShapeWithoutElements) {
  ExpectShape(OpTest("Reshape", 2).Random("x", {4, 0}, 1).Input("new_shape", Int64s({0, 0, 5})), {0, 0, 5});
}

TEST(Reshape, AllowzeroSaysWhatAZeroIs) {
  const auto reshape = [](const Shape& x, const std::vector<std::int64_t>& shape, int allowzero, bool is_input) {
    OpTest op("Reshape");
    op.Arg("allowzero", allowzero).Random("x", x, 1);
    if (is_input) return op.Input("new_shape", Int64s(shape));
    return op.Ints("shape", shape);
  };
  for (const bool is_input : {false, true}) {
    ExpectShape(reshape({1, 3, 2, 0}, {1, 0, 2, 0}, 0, is_input), {1, 3, 2, 0});
    ExpectShape(reshape({1, 3, 2, 0}, {1, 0, 2, 0}, 1, is_input), {1, 0, 2, 0});
    ExpectShape(reshape({2, 0}, {0, 5}, 1, is_input), {0, 5});
    ExpectShape(reshape({2, 0}, {-1, 5}, 1, is_input), {0, 5});
    ExpectError(
        [&] {
          reshape({2, 3}, {0, 3}, 1, is_input).Run();
        },
        "…x is float [2, 3] and cannot be reshaped to [0, 3]: the numbers of elements differ");
    ExpectError(
        [&] {
          reshape({2, 0}, {0, -1}, 1, is_input).Run();
        },
        "…x is float [2, 0] and cannot be reshaped to [0, -1]: a size is negative, and another one is 0");
  }
}

TEST(Reshape, WorksInPlace) {
  const std::vector<Tensor> outputs = ReshapeTo({6}, {2, 3}).InPlace(0, 0).Run();
  EXPECT_EQ(outputs[0].shape(), Shape({6}));
  EXPECT_EQ(ToDoubles(outputs[1]), (std::vector<double>{2, 3}));
}

TEST(Reshape, GradientMatchesDifferences) {
  ReshapeTo({3, 2}, {2, 3}).GradientMatches({0});
  OpTest("Reshape", 2).Random("x", {2, 3}, 1).Input("new_shape", Int64s({6})).GradientMatches({0});
}

TEST(Reshape, GradientIsWrittenAsCaffe2WritesIt) {
  OperatorDef def;
  def.set_type("Reshape");
  def.add_input("x");
  def.add_output("y");
  def.add_output("old");
  def.add_arg()->set_name("shape");
  def.mutable_arg(0)->add_ints(-1);
  const OperatorGradient gradient = MakeGradient(def, {{.dense = "dy"}, {}});
  ASSERT_EQ(gradient.ops.size(), 1);
  EXPECT_EQ(gradient.ops[0].ShortDebugString(),
            "input: \"dy\" input: \"old\" output: \"x_grad\" output: \"_x_grad_dims\" type: \"Reshape\" "
            "is_gradient_op: true");
}

// Where nobody has asked for the old shape, the gradient reads that of x.
TEST(Reshape, MayLeaveOutTheOldShape) {
  const OpTest test = OpTest("Reshape").Random("x", {2, 3}, 1).Ints("shape", {3, -1});
  EXPECT_EQ(test.Run()[0].shape(), Shape({3, 2}));
  test.GradientMatches();
  OperatorDef def = ParseOp("y = Reshape(x)");
  AddInts(&def, "shape", {-1});
  const OperatorGradient gradient = MakeGradient(def, {{.dense = "dy"}});
  ASSERT_EQ(gradient.ops.size(), 1);
  EXPECT_EQ(gradient.ops[0].type(), "ResizeLike");
}

// In place the shape of x is gone, so it is kept under another name.
TEST(Reshape, LeavesOutTheOldShapeInPlace) {
  NetDef net;
  *net.add_op() = ParseOp("c = Tanh(x)");
  *net.add_op() = ParseOp("c = Reshape(c)");
  AddInts(net.mutable_op(1), "shape", {-1});
  *net.add_op() = ParseOp("y = Sqr(c)");
  Workspace workspace;
  workspace.SetTensor("x", Random({2, 3}, 1));
  RunNetOnce(AddGradients(net, {"y"}, {"x"}).net, workspace);
  EXPECT_EQ(workspace.GetTensor("x_grad").shape(), Shape({2, 3}));
}

TEST(Reshape, RefusesShapesThatDoNotFit) {
  ExpectError(
      [] {
        ReshapeTo({4}, {2, 3}).Run();
      },
      "shape mismatch: x is float [2, 3] and cannot be reshaped to [4]: the numbers of elements differ\n"
      "  at op 0 `output0, output1 = Reshape(x)` with x float [2, 3]\n"
      "  in net \"test\"");
  ExpectError([] { ReshapeTo({-1, -1}, {2, 3}).Run(); }, "…[-1, -1]: more than one size is -1");
  ExpectError(
      [] {
        ReshapeTo({4, -1}, {2, 3}).Run();
      },
      "…[4, -1]: the number of elements is no multiple of the sizes given");
  ExpectError(
      [] {
        ReshapeTo({2, 3, 0}, {2, 3}).Run();
      },
      "…[2, 3, 0]: a size of 0 keeps a dimension, and there is none in this place");
  ExpectError([] { ReshapeTo({-2, 3}, {2, 3}).Run(); }, "…Reshape: shape is -2, must be at least -1");
  ExpectError([] { ReshapeTo({INT64_MAX, INT64_MAX}, {2, 3}).Run(); }, "…multiply to more than 2^63");
  ExpectError([] { OpTest("Reshape", 2).Random("x", {2}, 1).Input("s", Int64s({-3})).Run(); },
              "…[-3]: a size is negative");
  ExpectError([] { OpTest("Reshape", 2).Random("x", {2}, 1).Run(); },
              "…Reshape needs the new shape either as an argument or as an input");
  ExpectError([] { OpTest("Reshape", 2).Random("x", {2}, 1).Random("s", {1}, 2).Run(); },
              "…s is float [1] where int32 or int64 is needed");
}

TEST(Squeeze, RemovesDimensionsOfSizeOne) {
  OpTest("Squeeze").Ints("dims", {2, 0}).Input("x", {1, 2, 1}, {4, 5}).Gives({2}, {4, 5});
  ExpectShape(OpTest("Squeeze").Ints("dims", {0}).Random("x", {1, 0, 3}, 1).InPlace(0, 0), {0, 3});
}

TEST(Squeeze, CountsNegativeDimensionsFromTheEnd) {
  ExpectShape(OpTest("Squeeze").Ints("dims", {-1, 2}).Random("x", {1, 2, 1}, 1), {1, 2});
  ExpectShape(OpTest("Squeeze").Ints("dims", {-3, -1}).Random("x", {1, 2, 1}, 1), {2});
}

TEST(Squeeze, GradientMatchesDifferences) {
  OpTest("Squeeze").Ints("dims", {0, 2}).Random("x", {1, 3, 1}, 1).GradientMatches();
  OpTest("Squeeze").Ints("dims", {-3, -1}).Random("x", {1, 3, 1}, 1).GradientMatches();
}

TEST(Squeeze, RefusesOtherSizes) {
  ExpectError(
      [] {
        OpTest("Squeeze").Ints("dims", {1}).Random("x", {1, 2}, 1).Run();
      },
      "shape mismatch: Squeeze needs a dimension 1 of size 1; x is float [1, 2]\n"
      "  at op 0 `output0 = Squeeze(x)` with x float [1, 2]\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("Squeeze").Ints("dims", {2}).Random("x", {1, 2}, 1).Run();
      },
      "…Squeeze needs a dimension 2 of size 1");
  ExpectError([] { OpTest("Squeeze").Random("x", {1}, 1).Run(); }, "…Squeeze needs the argument \"dims\"");
  ExpectError([] { OpTest("Squeeze").Ints("dims", {}).Random("x", {1}, 1).Run(); },
              "…Squeeze needs at least one dimension in dims");
  ExpectError(
      [] {
        OpTest("Squeeze").Ints("dims", {-1}).Random("x", {1, 2}, 1).Run();
      },
      "…Squeeze needs a dimension 1 of size 1");
  ExpectError(
      [] {
        OpTest("Squeeze").Ints("dims", {-3}).Random("x", {1, 2}, 1).Run();
      },
      "…Squeeze has no dimension -3 of 2");
}

TEST(ExpandDims, AddsDimensionsOfSizeOne) {
  OpTest("ExpandDims").Ints("dims", {3, 0}).Input("x", {2, 1}, {4, 5}).Gives({1, 2, 1, 1}, {4, 5});
  ExpectShape(OpTest("ExpandDims").Ints("dims", {1, 1}).Random("x", {0}, 1).InPlace(0, 0), {0, 1});
  ExpectShape(OpTest("ExpandDims").Ints("dims", {-1, 0}).Random("x", {2, 3}, 1), {1, 2, 3, 1});
  ExpectShape(OpTest("ExpandDims").Ints("dims", {-2}).Random("x", {2, 3}, 1), {2, 1, 3});
}

TEST(ExpandDims, GradientMatchesDifferences) {
  OpTest("ExpandDims").Ints("dims", {0, 2}).Random("x", {3, 2}, 1).GradientMatches();
  OpTest("ExpandDims").Ints("dims", {0, -1}).Random("x", {3, 2}, 1).GradientMatches();
}

TEST(ExpandDims, RefusesDimensionsBeyondTheEnd) {
  ExpectError(
      [] {
        OpTest("ExpandDims").Ints("dims", {0, 4}).Random("x", {3, 2}, 1).Run();
      },
      "shape mismatch: ExpandDims cannot add a dimension 4 to 3; x is float [3, 2]\n"
      "  at op 0 `output0 = ExpandDims(x)` with x float [3, 2]\n"
      "  in net \"test\"");
}

TEST(Flatten, MakesAMatrix) {
  ExpectShape(OpTest("Flatten").Random("x", {2, 3, 4}, 1), {2, 12});
  ExpectShape(OpTest("Flatten").Arg("axis", 3).Random("x", {2, 3, 4}, 1), {24, 1});
  ExpectShape(OpTest("Flatten").Arg("axis", 0).Random("x", {0, 3}, 1), {1, 0});
  OpTest("Flatten").Arg("axis", 2).Random("x", {2, 1, 3}, 1).GradientMatches();
  ExpectError(
      [] {
        OpTest("Flatten").Arg("axis", 3).Random("x", {2, 3}, 1).Run();
      },
      "…Flatten with axis 3 needs that many dimensions; x is float [2, 3]");
}

TEST(FlattenToVec, MakesAVector) {
  OpTest("FlattenToVec").Input("x", {2, 2}, {1, 2, 3, 4}).Gives({4}, {1, 2, 3, 4});
  OpTest("FlattenToVec").Input("x", {}, {1}).Gives({1}, {1});
  OpTest("FlattenToVec").Random("x", {2, 3}, 1).GradientMatches();
}

TEST(ResizeLike, TakesTheOtherShape) {
  const OpTest op = OpTest("ResizeLike").Input("x", {2, 2}, {1, 2, 3, 4}).Input("like", Int64s({0, 0, 0, 0}));
  op.Gives({4}, {1, 2, 3, 4});
  op.GradientMatches();
  ExpectError(
      [] {
        OpTest("ResizeLike").Random("x", {2, 2}, 1).Random("like", {3}, 2).Run();
      },
      "…ResizeLike needs as many elements in both; x is float [2, 2] and like is float [3]");
}

}  // namespace
}  // namespace stepnet
