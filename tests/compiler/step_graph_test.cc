#include "stepnet/compiler/step_graph.h"

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/import_step.h"
#include "stepnet/compiler/recurrent_plan.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

NetDef NetOf(const std::vector<std::string>& ops) {
  NetDef net;
  net.set_name("cell");
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

TensorInfo Floats(const Shape& shape) { return {.dtype = DType::kFloat, .shape = shape}; }

TEST(StepGraph, EveryWriteMakesAValue) {
  const NetDef net = NetOf({"a = Sum(x, y)", "a = Tanh(a)", "b = Mul(a, x)", "a = Copy(b)"});
  const StepGraph graph = ImportStep(net, {{"x", Floats({1, 2})}, {"y", Floats({1, 2})}});
  EXPECT_EQ(GraphText(graph),
            "step cell {\n"
            "  x: float [1, 2]\n"
            "  y: float [1, 2]\n"
            "  a.1: float [1, 2] = Sum(x, y) @0 {}\n"
            "  a.2: float [1, 2] in a.1 = Tanh(a.1) @1 {}\n"
            "  b.1: float [1, 2] = Mul(a.2, x) @2 {}\n"
            "  a.3: float [1, 2] in a.1 = Copy(b.1) @3 {}\n"
            "}\n");
  EXPECT_EQ(graph.values[graph.last.at("a")].version, 3);
}

TEST(StepGraph, WhatIsErasedLeavesItsStage) {
  const std::string first = "  for 4 steps at once:\n  a.1: float [1, 2] kept = Tanh(x) @0 {}\n";
  const std::string last = "  in each step:\n  ^y: float [1, 2] at 1[8 * t] = a.1\n";
  const std::string begin = "step step {\n  x: float [1, 2] at 0[8 * t]\n";
  // One node of a stage, and all nodes of another.
  StepGraph graph = ParseGraph(begin + first + "  b.1: float [1, 2] kept = Tanh(x) @1 {}\n" +
                               "  once for all steps:\n  c.1: float [1, 2] kept = Tanh(x) @2 {}\n" + last + "}\n");
  graph.last.erase("b");
  graph.last.erase("c");
  graph.Erase({false, true, true, false});
  EXPECT_EQ(GraphText(graph), begin + first + last + "}\n");
}

TEST(StepGraph, ValuesThatFollowFromShapesAreKnown) {
  // Reshape's second output, the old shape, is what the second Reshape needs.
  NetDef net = NetOf({"r, old = Reshape(x)", "back, unused = Reshape(r, old)"});
  AddInts(net.mutable_op(0), "shape", {6});
  const StepGraph graph = ImportStep(net, {{"x", Floats({1, 2, 3})}});
  EXPECT_EQ(graph.values[graph.last.at("back")].info.shape, Shape({1, 2, 3}));
  EXPECT_FALSE(graph.nodes[1].by_blobs);
}

TEST(StepGraph, OtherShapesAreKnownOnlyAtEachStep) {
  const NetDef net = NetOf({"r, old = Reshape(x, wanted)", "y = Tanh(r)"});
  const TensorInfo wanted{.dtype = DType::kInt64, .shape = Shape({2})};
  const StepGraph graph = ImportStep(net, {{"x", Floats({1, 6})}, {"wanted", wanted}});
  EXPECT_TRUE(graph.nodes[0].by_blobs);
  EXPECT_TRUE(graph.values[graph.last.at("y")].dynamic);
}

TEST(StepGraph, NamesTheOperatorWhoseShapesDoNotFit) {
  const NetDef net = NetOf({"a = Tanh(x)", "b = Mul(a, y)"});
  ExpectError(
      [&] {
        ImportStep(net, {{"x", Floats({1, 2})}, {"y", Floats({1, 3})}});
      },
      "…at op 1 `b = Mul(a, y)` with a float [1, 2], y float [1, 3]\n  in net \"cell\"");
}

TEST(StepGraph, RefusesABlobThatIsReadBeforeItIsWritten) {
  const NetDef net = NetOf({"a = Mul(x, b)", "b = Tanh(x)"});
  ExpectError(
      [&] {
        ImportStep(net, {{"x", Floats({1, 2})}});
      },
      "invalid net: \"b\" is read before anything writes it\n"
      "  at op 0 `a = Mul(x, b)` with x float [1, 2]\n  in net \"cell\"");
}

}  // namespace
}  // namespace stepnet
