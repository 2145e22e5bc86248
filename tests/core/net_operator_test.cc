#include "stepnet/core/net_operator.h"

#include "stepnet/core/net.h"
#include "stepnet/core/proto_io.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// y has the shape of a; b is read and does not matter.
const Registration first_of_two =
    Operator("test.FirstOfTwo")
        .Input("a", "float, any shape")
        .Input("b", "any")
        .Output("y", "as a")
        .Shapes(SameAsInput(0))
        .Cpu([](const OpInit&) -> RunFn { return [](const OpRun& run) { CopyElements(run.In(0), run.Out(0)); }; });

const Registration constant =
    Operator("test.Constant")
        .Output("y", "float [3]")
        .Shapes(
            [](const ShapeQuery&) { return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = Shape({3})}}; })
        .Cpu([](const OpInit&) -> RunFn {
          return [](const OpRun& run) { std::fill_n(run.Out(0).As<float>(), run.Out(0).size(), 7.0f); };
        });

// y has as many elements as its second input says, or one; counts how often the shape rule is asked.
int shapes_inferred = 0;
const Registration sized =
    Operator("test.Sized")
        .Input("x", "float, any shape")
        .OptionalInput("size", "int32 [1]")
        .Output("y", "float [size]")
        .ReadsValues({1})
        .Shapes([](const ShapeQuery& query) {
          ++shapes_inferred;
          const std::vector<std::int64_t> size =
              query.num_inputs() > 1 ? query.IntsOf(1) : std::vector<std::int64_t>{1};
          return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = Shape(size)}};
        })
        .Cpu([](const OpInit&) -> RunFn {
          return [](const OpRun& run) { std::fill_n(run.Out(0).As<float>(), run.Out(0).size(), 0.0f); };
        });

OperatorDef Def(const std::string& text) {
  OperatorDef def;
  ParseMessageText(text, "test", &def);
  return def;
}

NetOperator Make(const std::string& text, Workspace& workspace) { return {OpInit(Def(text)), workspace}; }

TEST(NetOperator, InfersShapesWithoutInputs) {
  Workspace workspace;
  NetOperator op = Make("type: 'test.Constant' output: 'y'", workspace);
  RunContext context;
  for (int i = 0; i < 2; ++i) {
    op.Run(context);
    EXPECT_EQ(workspace.GetTensor("y").Description(), "float [3]");
    EXPECT_EQ(workspace.GetTensor("y").data<float>()[2], 7);
    workspace.GetBlob("y").Reset();
  }
}

TEST(NetOperator, FollowsTheShapesOfItsInputs) {
  Workspace workspace;
  NetOperator op = Make("type: 'Relu' input: 'x' output: 'y'", workspace);
  RunContext context;
  for (const std::int64_t size : {5, 0, 1, 100, 3, 0, 7}) {
    workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {size, 2}));
    op.Run(context);
    EXPECT_EQ(workspace.GetTensor("y").shape(), Shape({size, 2}));
  }
  workspace.SetTensor("x", Tensor::Zeros(DType::kDouble, {7, 2}));
  op.Run(context);
  EXPECT_EQ(workspace.GetTensor("y").Description(), "double [7, 2]");
}

TEST(NetOperator, FollowsTheElementsOfInputsThatTheShapeRuleReads) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {1}));
  NetOperator op = Make("type: 'test.Sized' input: 'x' input: 'size' output: 'y'", workspace);
  RunContext context;
  for (const std::int32_t size : {3, 2}) {
    workspace.SetTensor("size", Tensor::Of<std::int32_t>({1}, {size}));
    op.Run(context);
    EXPECT_EQ(workspace.GetTensor("y").shape(), Shape({size}));
  }
}

TEST(NetOperator, InfersOnceForOneShapeWhereNoElementsAreGiven) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {1}));
  NetOperator op = Make("type: 'test.Sized' input: 'x' output: 'y'", workspace);
  RunContext context;
  shapes_inferred = 0;
  for (int i = 0; i < 3; ++i) op.Run(context);
  EXPECT_EQ(shapes_inferred, 1);
}

TEST(NetOperator, AnInputWithoutTensorLeavesNoOldShapeBehind) {
  Workspace workspace;
  workspace.SetTensor("a", Tensor::Zeros(DType::kFloat, {1}));
  workspace.SetTensor("b", Tensor::Zeros(DType::kFloat, {1}));
  NetOperator op = Make("type: 'test.FirstOfTwo' input: 'a' input: 'b' output: 'y'", workspace);
  RunContext context;
  op.Run(context);
  workspace.SetTensor("a", Tensor::Zeros(DType::kFloat, {1000}));
  workspace.GetBlob("b").Reset();
  ExpectError([&] { op.Run(context); }, "type mismatch: blob \"b\" holds nothing, a tensor is needed");
  workspace.SetTensor("b", Tensor::Zeros(DType::kFloat, {1}));
  op.Run(context);
  EXPECT_EQ(workspace.GetTensor("y").shape(), Shape({1000}));
}

TEST(NetOperator, InfersAgainAfterTheRuleHasThrown) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kInt32, {2}));
  NetOperator op = Make("type: 'Relu' input: 'x' output: 'y'", workspace);
  RunContext context;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(op.Run(context), Error);
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {2}));
  op.Run(context);
  EXPECT_EQ(workspace.GetTensor("y").Description(), "float [2]");
}

TEST(NetOperator, WorksInPlaceInTheInputsMemory) {
  Workspace workspace;
  const Tensor x = Tensor::Of<float>({2}, {-1, 2});
  workspace.SetTensor("x", x);
  NetOperator op = Make("type: 'Relu' input: 'x' output: 'x'", workspace);
  RunContext context;
  op.Run(context);
  EXPECT_TRUE(workspace.GetTensor("x").SharesStorageWith(x));
  EXPECT_EQ(x.data<float>()[0], 0);
}

TEST(NetOperator, KeepsMemoryFromRunToRunUnlessSomebodyHoldsIt) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<float>({2}, {1, 2}));
  NetOperator op = Make("type: 'Relu' input: 'x' output: 'y'", workspace);
  RunContext context;
  op.Run(context);
  const void* memory = workspace.GetTensor("y").raw();
  op.Run(context);
  EXPECT_EQ(workspace.GetTensor("y").raw(), memory);
  const Tensor held = workspace.GetTensor("y");
  workspace.SetTensor("x", Tensor::Of<float>({2}, {3, 4}));
  op.Run(context);
  EXPECT_FALSE(workspace.GetTensor("y").SharesStorageWith(held));
  EXPECT_EQ(held.data<float>()[0], 1);
}

TEST(NetOperator, EstimatesItsCost) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {5}));
  NetOperator op = Make("type: 'Relu' input: 'x' output: 'y'", workspace);
  EXPECT_EQ(op.LastCost().flops, 0);
  RunContext context;
  op.Run(context);
  EXPECT_EQ(op.LastCost().flops, 5);
  EXPECT_EQ(op.LastCost().bytes, 40);
  EXPECT_EQ(op.InputsText(), "x float [5]");
}

}  // namespace
}  // namespace stepnet
