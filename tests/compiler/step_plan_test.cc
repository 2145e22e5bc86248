#include "stepnet/compiler/step_plan.h"

#include "join_regions.h"
#include "stepnet/compiler/import_step.h"
#include "stepnet/compiler/make_step_plan.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/executor/run_state.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

BoundBlob Linked(const std::string& blob, int base, std::int64_t offset, bool readable) {
  const Shape row({1, 4});
  return {.home = {.kind = Home::Kind::kOutside,
                   .slot = {.blob = blob,
                            .storage_class = StorageClass::kLinked,
                            .base = base,
                            .offset = offset,
                            .row_bytes = 16,
                            .bytes = 16}},
          .info = {.dtype = DType::kFloat, .shape = row},
          .readable = readable};
}

StepGraph GraphOf(const NetDef& net, const StepBindings& bindings) {
  StepGraph graph;
  graph.num_bases = 2;
  ImportStep(std::make_shared<const NetDef>(net), RunOptions(), bindings, &graph);
  return graph;
}

StepPlan PlanOf(StepGraph graph, std::set<std::string> disabled_passes = {"fuse_regions"}) {
  return MakeStepPlan(std::move(graph), {.options = {.disabled_passes = std::move(disabled_passes)}});
}

TEST(StepPlan, PlacesEveryBlobOnce) {
  NetDef net;
  net.set_name("cell");
  for (const char* op : {"s = Sum(x, prev)", "s = Tanh(s)", "t = Mul(s, s)", "next = Copy(t)"})
    *net.add_op() = ParseOp(op);
  StepGraph graph =
      GraphOf(net, {.blobs = {Linked("x", 0, 0, true), Linked("prev", 1, 0, true), Linked("next", 1, 1, false)}});
  graph.homes[graph.values[graph.last.at("s")].home].kept = true;
  const StepPlan plan = PlanOf(std::move(graph));
  EXPECT_EQ(PlanText(plan),
            "plan of net cell\n"
            "  base 2: 16 bytes a step\n"
            "  base 3: 16 bytes\n"
            "  slot 0: x, linked at 0[16 * t], 16 bytes\n"
            "  slot 1: prev, linked at 1[16 * t], 16 bytes\n"
            "  slot 2: s, stacked at 2[16 * t], 16 bytes\n"
            "  slot 3: t, ring at 3, 16 bytes\n"
            "  slot 4: next, linked at 1[16 * (t + 1)], 16 bytes\n"
            "in each step:\n"
            "  0: s = Sum(x, prev): 0, 1 to 2\n"
            "  1: s = Tanh(s): 2 to 2\n"
            "  2: t = Mul(s, s): 2, 2 to 3\n"
            "  3: next = Copy(t): 3 to 4\n");
  EXPECT_EQ(plan.ArenaBytes(0), 64);
  EXPECT_EQ(plan.ArenaBytes(100), 1600 + 64);
}

TEST(StepPlan, EachValueHasRoom) {
  NEEDS_USUAL_PLANS();
  NetDef net;
  net.set_name("cell");
  OperatorDef shrink = ParseOp("s = ReduceSum(wide)"), grow = ParseOp("t = Mul(x, x)");
  AddInts(&shrink, "axes", {1});
  for (const OperatorDef& op :
       {ParseOp("s = Sum(x, x)"), ParseOp("wide = Copy(s)"), shrink, ParseOp("t = Copy(s)"), grow})
    *net.add_op() = op;
  // Nobody reads the values.
  const StepPlan plan = PlanOf(GraphOf(net, {.blobs = {Linked("x", 0, 0, true)}}), {"fuse_regions", "simplify"});
  EXPECT_EQ(PlanText(plan),
            "plan of net cell\n"
            "  base 2: 16 bytes\n"
            "  base 3: 16 bytes\n"
            "  slot 0: x, linked at 0[16 * t], 16 bytes\n"
            "  slot 1: s, ring at 2, 16 bytes\n"
            "  slot 2: wide, ring at 3, 16 bytes\n"
            "  slot 3: t, ring at 3, 4 bytes\n"
            "  slot 4: s, ring at 2, 4 bytes\n"
            "  slot 5: t, ring at 3, 16 bytes\n"
            "in each step:\n"
            "  0: s = Sum(x, x): 0, 0 to 1\n"
            "  1: wide = Copy(s): 1 to 2\n"
            "  2: s = ReduceSum(wide): 2 to 4\n"
            "  3: t = Copy(s): 4 to 3\n"
            "  4: t = Mul(x, x): 0, 0 to 5\n");
}

TEST(StepPlan, MovesFollowTheLastWriter) {
  NetDef net;
  net.set_name("cell");
  for (const char* op : {"s = Sum(x, x)", "s = Tanh(s)", "z = Copy(s)"}) *net.add_op() = ParseOp(op);
  const Slot outside{.blob = "total", .storage_class = StorageClass::kShared, .base = 1, .bytes = 16};
  const BoundMove add{.kind = BoundMove::Kind::kAddOut,
                      .blob = "s",
                      .outside = {.kind = Home::Kind::kOutside, .slot = outside},
                      .info = {.dtype = DType::kFloat, .shape = Shape({1, 4})}};
  const StepPlan plan =
      PlanOf(GraphOf(net, {.blobs = {Linked("x", 0, 0, true)}, .moves = {add}}), {"fuse_regions", "simplify"});
  std::vector<std::string> texts;
  for (const Instruction& instruction : plan.instructions) texts.push_back(instruction.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"s = Sum(x, x)", "s = Tanh(s)", "total += s", "z = Copy(s)"}));
}

TEST(StepPlan, RefusesABlobThatDoesNotFitItsMove) {
  NetDef net;
  net.set_name("cell");
  *net.add_op() = ParseOp("s = Sum(x, x)");
  const Slot outside{.blob = "total", .storage_class = StorageClass::kShared, .base = 1, .bytes = 20};
  const BoundMove add{.kind = BoundMove::Kind::kAddOut,
                      .blob = "s",
                      .outside = {.kind = Home::Kind::kOutside, .slot = outside},
                      .info = {.dtype = DType::kFloat, .shape = Shape({5})}};
  ExpectError(
      [&] { PlanOf(GraphOf(net, {.blobs = {Linked("x", 0, 0, true)}, .moves = {add}})); },
      "shape mismatch: \"s\" is float [1, 4] in the step net; it belongs to \"total\", where a step has room for float "
      "[5]\n"
      "  in net \"cell\"");
}

TEST(StepPlan, AnEmptyBatchIsNotRunStepByStep) {
  RecurrentCase net;
  net.Sequence("x", "x_t")
      .State("h", "h0", "h_prev", "h_next")
      .Step("h_next = Sum(x_t, h_prev)")
      .Output("h_all", "h", 1);
  // Two thousand million steps of nothing.
  const std::int64_t steps = 2'000'000'000;
  net.Feed("x", Tensor(DType::kFloat, Shape({steps, 0, 4}))).Feed("h0", Tensor(DType::kFloat, Shape({0, 4}))).Run();
  EXPECT_EQ(net.Get("h_all").shape(), Shape({steps, 0, 4}));
  net.Feed("x", Tensor(DType::kFloat, Shape({3'000'000'000, 0, 4})));
  ExpectError([&] { net.Run(); }, "…shape mismatch: \"x\" is float [3000000000, 0, 4]; the number of a step is int32");
}

int num_counted = 0;

// y = x; counts how often it runs.
const Registration count = Operator("test.CountRuns")
                               .Input("x", "any shape")
                               .Output("y", "the shape of x")
                               .HasSideEffects()
                               .Shapes(SameAsInput(0))
                               .Cpu([](const OperatorCall&) -> RunFn {
                                 return [](const OpRun& run) {
                                   ++num_counted;
                                   CopyElements(run.In(0), run.Out(0));
                                 };
                               });

// What is checked may have elements where what is computed has none.
TEST(StepPlan, AnEmptyBatchIsRunForWhatIsChecked) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("lengths");
  net.Step("m = StepMask(x_t, lengths)").Step("h_next = Sum(x_t, h_prev)").Output("h_all", "h", 1);
  net.Feed("x", Random({3, 2, 0}, 1)).Feed("h0", Random({2, 0}, 2)).Feed("lengths", Tensor::Of<int>({2}, {1, 7}));
  const auto run = [&] { Net::Create(net.Build(), net.workspace())->Run(); };
  ExpectError(run, "…element 1 of lengths is 7");
  const ExtraPass form([](StepGraph* graph) { EXPECT_EQ(JoinRegions(graph), 1); });
  ExpectError(run, "…element 1 of lengths is 7");
}

TEST(StepPlan, AnEmptyBatchIsRunForItsSideEffects) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("h_next = test.CountRuns(x_t)").Output("h_all", "h", 1);
  net.Feed("x", Random({3, 0, 4}, 1)).Feed("h0", Random({0, 4}, 2));
  num_counted = 0;
  net.Run();
  EXPECT_EQ(num_counted, 3);
}

TEST(StepPlan, ARunRefusesMemoryThatEndsBeforeItsSteps) {
  NetDef net;
  net.set_name("cell");
  *net.add_op() = ParseOp("next = Tanh(x)");
  const auto plan = std::make_shared<StepPlan>(
      PlanOf(GraphOf(net, {.blobs = {Linked("x", 0, 0, true), Linked("next", 1, 1, false)}})));
  const auto prepare = [&](std::int64_t x_rows, std::int64_t y_rows) {
    RunState state(plan);
    Workspace workspace;
    state.SetBase(0, Tensor(DType::kFloat, {x_rows, 1, 4}));
    state.SetBase(1, Tensor(DType::kFloat, {y_rows, 1, 4}));
    state.Prepare(3, workspace);
  };
  prepare(3, 4);
  ExpectError(
      [&] { prepare(2, 4); },
      "shape mismatch: step 2 of 3 would see \"x\", float [1, 4], beyond the end of float [2, 1, 4], to which it "
      "is linked at offset 0\n  in net \"cell\"");
  ExpectError([&] { prepare(3, 3); }, "…would see \"next\", float [1, 4], beyond the end of float [3, 1, 4]");
}

}  // namespace
}  // namespace stepnet
