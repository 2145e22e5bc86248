#include "stepnet/nets/net_operator.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <stdexcept>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// y has the shape of a; b is read and does not matter.
const Registration first_of_two = Operator("test.FirstOfTwo")
                                      .Input("a", "float, any shape")
                                      .Input("b", "any")
                                      .Output("y", "as a")
                                      .Shapes(SameAsInput(0))
                                      .Cpu([](const OperatorCall&) -> RunFn {
                                        return [](const OpRun& run) { CopyElements(run.In(0), run.Out(0)); };
                                      });

const Registration constant =
    Operator("test.Constant")
        .Output("y", "float [3]")
        .Shapes(
            [](const ShapeQuery&) { return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = Shape({3})}}; })
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) { std::fill_n(run.Out(0).As<float>(), run.Out(0).size(), 7.0f); };
        });

// y has as many elements as its second input says, or one; counts how often the shape rule is asked.
int shapes_inferred = 0;
const Registration sized =
    Operator("test.Sized")
        .Input("x", "float, any shape")
        .OptionalInput("size", "int32 [1]")
        .Output("y", "float [size]")
        .ShapesReadValues({1})
        .Shapes([](const ShapeQuery& query) {
          ++shapes_inferred;
          const std::vector<std::int64_t> size =
              query.num_inputs() > 1 ? query.IntsOf(1) : std::vector<std::int64_t>{1};
          return std::vector<TensorInfo>{{.dtype = DType::kFloat, .shape = Shape(size)}};
        })
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) { std::fill_n(run.Out(0).As<float>(), run.Out(0).size(), 0.0f); };
        });

OperatorDef Def(const std::string& text) {
  OperatorDef def;
  ParseMessageText(text, "test", &def);
  return def;
}

NetOperator Make(const std::string& text, Workspace& workspace) { return {OperatorCall(Def(text)), workspace}; }

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
  ExpectError([&] { op.Run(context); },
              "type mismatch: blob \"b\" holds nothing, a tensor is needed; test.FirstOfTwo reads it as b: any");
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

// Runs of a kernel in parts, as its threads see them.
std::mutex parts_mutex;
std::vector<std::pair<int, int>> parts_seen;  // (part, parts)
int failing_part = -1;

void SeePart(const OpRun& run) {
  const std::lock_guard lock(parts_mutex);
  parts_seen.emplace_back(run.part(), run.parts());
  if (run.part() == failing_part) throw std::runtime_error("made to fail");
}

// The parts of one run of the net, sorted.
std::vector<std::pair<int, int>> PartsOf(Net& net) {
  parts_seen.clear();
  net.Run();
  std::ranges::sort(parts_seen);
  return parts_seen;
}

// y = x + 1, of which parts do their share; as if it took a millisecond.
const Registration costly =
    Operator("test.Costly")
        .Input("x", "float, any shape")
        .Output("y", "as x")
        .Shapes(SameAsInput(0))
        .CostIs([](const ShapeQuery&, std::span<const TensorInfo>) { return Cost{.flops = 80e6}; })
        .Cpu({.make = [](const OperatorCall&) -> RunFn {
                return [](const OpRun& run) {
                  SeePart(run);
                  const auto [begin, end] = run.Share(run.In(0).size());
                  for (std::int64_t i = begin; i < end; ++i) run.Out(0).As<float>()[i] = run.In(0).As<float>()[i] + 1;
                };
              },
              .max_parts = [](const ShapeQuery&, std::span<const TensorInfo>) { return 4; }});

// An operator that does what `type` does, and notes its parts.
std::string Watched(const std::string& type) {
  const std::string watched_type = "test.Watched." + type;
  if (FindOperator(watched_type) != nullptr) return watched_type;
  const OperatorSchema& schema = GetOperator(type);
  Operator watched(watched_type);
  watched.Inputs("inputs", "as " + type).Outputs("outputs", "as " + type).Args(schema.arguments);
  watched.Shapes(schema.shapes).CostIs(schema.cost);
  Kernel kernel = *schema.FindKernel(DeviceKind::kCpu);
  kernel.make = [make = kernel.make](const OperatorCall& op) -> RunFn {
    return [run_kernel = make(op)](const OpRun& run) {
      SeePart(run);
      run_kernel(run);
    };
  };
  watched.Cpu(std::move(kernel));
  const Registration registered(watched);
  return watched_type;
}

NetDef NetOf(const OperatorDef& op) {
  NetDef net;
  net.set_name("parts");
  *net.add_op() = op;
  return net;
}

TEST(ParallelNetOperator, RunsInPartsOnExecutorsThatUseThreads) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<float>({5}, {0, 1, 2, 3, 4}));
  const NetDef def = NetOf(Def("type: 'test.Costly' input: 'x' output: 'y'"));
  using Parts = std::vector<std::pair<int, int>>;
  const auto parts_on = [&](const RunOptions& options) {
    const auto net = Net::Create(def, workspace, options);
    const Parts first = PartsOf(*net);
    EXPECT_EQ(PartsOf(*net), first) << "in the next run";
    for (int i = 0; i < 5; ++i) EXPECT_EQ(workspace.GetTensor("y").data<float>()[i], static_cast<float>(i + 1));
    workspace.GetBlob("y").Reset();
    return first;
  };
  EXPECT_EQ(parts_on({.executor = "serial", .threads = 3}), (Parts{{0, 1}}));
  EXPECT_EQ(parts_on({.executor = "test.threaded", .threads = 3}), (Parts{{0, 3}, {1, 3}, {2, 3}}));
  EXPECT_EQ(parts_on({.executor = "parallel", .threads = 1}), (Parts{{0, 1}}));
  EXPECT_EQ(parts_on({.executor = "parallel", .threads = 2}), (Parts{{0, 2}, {1, 2}}));
  EXPECT_EQ(parts_on({.executor = "parallel", .threads = 3}), (Parts{{0, 3}, {1, 3}, {2, 3}}));
  EXPECT_EQ(parts_on({.executor = "parallel", .threads = 8}), (Parts{{0, 4}, {1, 4}, {2, 4}, {3, 4}})) << "as it may";
}

TEST(ParallelNetOperator, RunsWholeWhatWouldEndBeforeAThreadHasCome) {
  Workspace workspace;
  OperatorDef fc = Def("input: 'x' input: 'w' output: 'y'");
  fc.set_type(Watched("FC"));
  const auto net = Net::Create(NetOf(fc), workspace, {.executor = "parallel", .threads = 2});
  workspace.SetTensor("w", Tensor::Zeros(DType::kFloat, {64, 64}));
  for (const auto& [rows, parts] : std::vector<std::pair<int, size_t>>{{512, 1}, {2048, 2}, {512, 1}}) {
    workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {rows, 64}));
    EXPECT_EQ(PartsOf(*net).size(), parts) << rows << " rows";
  }
}

TEST(ParallelNetOperator, ProductsOfManyRowsAreTheSameInAnyNumberOfParts) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto random = [&](const Shape& shape) {
    std::vector<float> values(static_cast<size_t>(shape.size()));
    for (float& value : values) value = uniform(rng);
    return Tensor::Of<float>(shape, values);
  };
  const Tensor x = random({2063, 96}), w = random({72, 96}), b = random({72}), v = random({96, 72});
  for (const std::string text : {"type: 'FC' input: 'x' input: 'w' input: 'b' output: 'y'",
                                 "type: 'FCTransposed' input: 'x' input: 'v' input: 'b' output: 'y'",
                                 "type: 'MatMul' input: 'x' input: 'v' output: 'y'"}) {
    OperatorDef op = Def(text);
    op.set_type(Watched(op.type()));
    const auto run = [&](const RunOptions& options, size_t parts) {
      Workspace workspace;
      for (const auto& [name, tensor] : {std::pair("x", x), std::pair("w", w), std::pair("b", b), std::pair("v", v)})
        workspace.SetTensor(name, tensor);
      workspace.SetTensor("y", random({2063, 72}));  // an element that no part writes does not look right
      EXPECT_EQ(PartsOf(*Net::Create(NetOf(op), workspace, options)).size(), parts) << op.type();
      const Tensor y = workspace.GetTensor("y");
      return std::string(static_cast<const char*>(y.raw()), static_cast<size_t>(y.size_bytes()));
    };
    const std::string expected = run({.executor = "serial"}, 1);
    for (const int threads : {1, 2, 3}) {
      EXPECT_TRUE(run({.executor = "parallel", .threads = threads}, static_cast<size_t>(threads)) == expected)
          << op.type() << ", " << threads << " threads";
    }
  }
}

TEST(ParallelNetOperator, WhatAPartThrowsReachesTheCallerAndTheNextRunWorks) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<float>({4}, {0, 1, 2, 3}));
  const auto net = Net::Create(NetOf(Def("type: 'test.Costly' input: 'x' output: 'y'")), workspace,
                               {.executor = "parallel", .threads = 4});
  for (int part = 0; part < 4; ++part) {
    failing_part = part;
    ExpectError([&] { net->Run(); },
                "operator failed: made to fail\n"
                "  at op 0 `y = test.Costly(x)` with x float [4]\n"
                "  in net \"parts\"");
    failing_part = -1;
    EXPECT_EQ(PartsOf(*net).size(), 4u);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(workspace.GetTensor("y").data<float>()[i], static_cast<float>(i + 1));
  }
}

}  // namespace
}  // namespace stepnet
