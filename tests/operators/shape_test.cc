#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

TEST(ShapeOp, GivesTheSizes) {
  OpTest("Shape").Random("x", {2, 0, 4}, 1).GivesExactly(Tensor::Of<std::int64_t>({3}, {2, 0, 4}));
  OpTest("Shape").Random("x", {}, 1).GivesExactly(Tensor::Of<std::int64_t>({0}, {}));
  OpTest("Shape").Ints("axes", {-1, 0}).Random("x", {2, 3, 4}, 1).GivesExactly(Tensor::Of<std::int64_t>({2}, {4, 2}));
}

TEST(ShapeOp, IsKnownFromShapesAlone) {
  OperatorDef def;
  def.set_type("Shape");
  def.add_input("x");
  const OperatorCall op(def);
  const std::vector<TensorInfo> x = {{.dtype = DType::kFloat, .shape = {5, 7}}};
  EXPECT_EQ(ToDoubles(op.schema().shapes(ShapeQuery(op, x))[0].value), (std::vector<double>{5, 7}));
}

TEST(ShapeOp, StopsGradients) {
  OperatorDef def;
  def.set_type("Shape");
  def.add_input("x");
  def.add_output("y");
  EXPECT_TRUE(MakeGradient(def, {{.dense = "dy"}}).ops.empty());
}

TEST(ShapeOp, RefusesAxesThatAreNotThere) {
  ExpectError(
      [] {
        OpTest("Shape").Ints("axes", {2}).Random("x", {2, 3}, 1).Run();
      },
      "invalid argument: an axis of Shape is 2, but the tensor is [2, 3] and has 2 dimensions\n"
      "  at op 0 `output0 = Shape(x)` with x float [2, 3]\n"
      "  in net \"test\"");
}

TEST(Size, CountsElements) {
  OpTest("Size").Random("x", {2, 3}, 1).GivesExactly(Tensor::Of<std::int64_t>({}, {6}));
  OpTest("Size").Random("x", {0, 3}, 1).GivesExactly(Tensor::Of<std::int64_t>({}, {0}));
}

}  // namespace
}  // namespace stepnet
