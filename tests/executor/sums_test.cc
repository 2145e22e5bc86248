// Gradients of captured tensors, which are sums over the steps: who adds, and that each term is added once.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "recurrent_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"

namespace stepnet {
namespace {

// Runs the net and returns its backward plan.
StepPlan BackwardPlanOf(const NetDef& def, Workspace& workspace, RunOptions options = {}) {
  StepPlan backward;
  options.on_plan = [&](const StepPlan& plan) {
    if (plan.backward) backward = plan;
  };
  Net::Create(def, workspace, options)->Run();
  return backward;
}

// "w_grad" for each instruction that adds to it as an operator; "w_grad +=" where a sum is an instruction of its own.
std::vector<std::string> WhoAddsTo(const StepPlan& plan, const std::string& blob) {
  std::vector<std::string> adders;
  for (const Instruction& instruction : plan.instructions) {
    for (const InstructionOperand& output : instruction.outputs) {
      if (plan.slots[output.slot].blob != blob) continue;
      if (output.added) adders.push_back(instruction.type);
      if (instruction.type == "add") adders.emplace_back("+=");
    }
  }
  return adders;
}

NetDef TrainingNet(RecurrentCase& net, const std::vector<std::string>& inputs) {
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  return AddGradients(def, {"h_all"}, inputs).net;
}

RecurrentCase Elman() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  return net;
}

void FeedElman(Workspace& workspace) {
  workspace.SetTensor("x", Random({4, 2, 3}, 1));
  workspace.SetTensor("h0", Random({2, 3}, 2));
  workspace.SetTensor("w", Random({3, 3}, 3));
  workspace.SetTensor("b", Random({3}, 4));
}

TEST(Sums, AnOperatorThatCanAddsToTheSumItself) {
  RecurrentCase net = Elman();
  OperatorDef fc = ParseOp("g = FC(h_prev, w, b)");
  AddInt(&fc, "axis", 2);
  net.Step(fc).Step("g = Sum(g, x_t)").Step("h_next = Tanh(g)").Output("h_all", "h", 1);
  Workspace workspace;
  FeedElman(workspace);
  const StepPlan plan =
      BackwardPlanOf(TrainingNet(net, {"w", "b"}), workspace, {.disabled_passes = {"write_first_terms"}});
  EXPECT_EQ(WhoAddsTo(plan, "w_grad"), std::vector<std::string>{"FCGradient"});
  EXPECT_EQ(WhoAddsTo(plan, "b_grad"), std::vector<std::string>{"FCGradient"});
}

// Two products with one weight, and one bias.
RecurrentCase ElmanWithSharedWeights() {
  RecurrentCase net = Elman();
  for (const char* text : {"g = FC(h_prev, w, b)", "f = FC(x_t, w, b)"}) {
    OperatorDef fc = ParseOp(text);
    AddInt(&fc, "axis", 2);
    net.Step(fc);
  }
  net.Step("s = Sum(g, f)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  return net;
}

TEST(Sums, WhatSeveralOperatorsGiveIsAddedUpFirstInAStep) {
  RecurrentCase net = ElmanWithSharedWeights();
  Workspace workspace;
  FeedElman(workspace);
  const StepPlan plan = BackwardPlanOf(TrainingNet(net, {"w", "b"}), workspace, {.opt_level = 0});
  EXPECT_EQ(WhoAddsTo(plan, "w_grad"), std::vector<std::string>{"+="});
  EXPECT_EQ(WhoAddsTo(plan, "b_grad"), std::vector<std::string>{"+="});
}

TEST(Sums, AtLevel1EachOfSeveralOperatorsAddsItself) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net = ElmanWithSharedWeights();
  Workspace workspace;
  FeedElman(workspace);
  const StepPlan plan =
      BackwardPlanOf(TrainingNet(net, {"w", "b"}), workspace, {.disabled_passes = {"write_first_terms"}});
  EXPECT_EQ(WhoAddsTo(plan, "w_grad"), (std::vector<std::string>{"FCGradient", "FCGradient"}));
  EXPECT_EQ(WhoAddsTo(plan, "b_grad"), (std::vector<std::string>{"FCGradient", "FCGradient"}));
  ExpectMadeGradientsMatch(
      net.Build(), {"h_all"},
      {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}, {"b", Random({3}, 4)}});
}

TEST(Sums, OfNoStepsAreZeroWhateverWasThere) {
  NEEDS_ALL_PASSES();
  RecurrentCase net = ElmanWithSharedWeights();
  Workspace workspace;
  workspace.SetTensor("h0", Random({2, 16}, 2));
  workspace.SetTensor("w", Random({16, 16}, 3));
  workspace.SetTensor("b", Random({16}, 4));
  workspace.SetTensor("x", Random({4, 2, 16}, 1));
  std::set<std::string> written;  // by their first term, in the run of four steps
  RunOptions options;
  options.on_plan = [&](const StepPlan& plan) {
    for (const Instruction& move : plan.before) {
      if (move.rows->only_without_steps) written.insert(move.rows->to.name);
    }
  };
  const std::unique_ptr<Net> training = Net::Create(TrainingNet(net, {"w", "b"}), workspace, options);
  training->Run();
  EXPECT_EQ(written, (std::set<std::string>{"b_grad", "w_grad"}));
  EXPECT_NE(Values(workspace.GetTensor("w_grad")), std::vector<double>(256));
  workspace.SetTensor("x", Random({0, 2, 16}, 1));
  training->Run();
  EXPECT_EQ(Values(workspace.GetTensor("w_grad")), std::vector<double>(256));
  EXPECT_EQ(Values(workspace.GetTensor("b_grad")), std::vector<double>(16));
}

// The backward step adds p = Sum(r, s) to the gradient of w, and q as `read` says.
StepPlan PlanWithASum(const std::string& read, RecurrentCase* net) {
  net->Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Step("h_next = Sum(x_t, w)");
  net->BackwardStep("r = Copy(h_next_grad)").BackwardStep("s = Tanh(h_next_grad)").BackwardStep("p = Sum(r, s)");
  if (!read.empty()) net->BackwardStep(read);
  net->BackwardLink("h_next_grad", "h_grad", 1).Param("w", "p");
  net->Output("h_all", "h", 1).OutputGradient("h_all").WithGradient();
  net->Feed("x", Random({3, 1, 2}, 1)).Feed("h0", Random({1, 2}, 2)).Feed("w", Random({1, 1, 2}, 3));
  net->Feed("h_all_grad", Random({3, 1, 2}, 4));
  return BackwardPlanOf(net->Build(), net->workspace());
}

TEST(Sums, TermsThatAreReadElsewhereAreAddedUpFirst) {
  NEEDS_USUAL_PLANS();
  RecurrentCase alone, with_reader_of_sum, with_reader_of_term;
  const StepPlan plan = PlanWithASum("", &alone);
  EXPECT_EQ(WhoAddsTo(plan, "w_grad"), (std::vector<std::string>{"+=", "+="}));
  EXPECT_EQ(plan.instructions.size(), 3) << "without the sum, and both terms in one";
  EXPECT_EQ(WhoAddsTo(PlanWithASum("q = Tanh(p)", &with_reader_of_sum), "w_grad"), std::vector<std::string>{"+="});
  EXPECT_EQ(WhoAddsTo(PlanWithASum("q = Tanh(s)", &with_reader_of_term), "w_grad"), std::vector<std::string>{"+="});
  for (const RecurrentCase* net : {&with_reader_of_sum, &with_reader_of_term}) {
    const std::vector<double> found = Values(alone.Get("w_grad")), expected = Values(net->Get("w_grad"));
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-14);
  }
}

TEST(Sums, TermsAreNotAddedBeforeSomebodyReadsWhatTheyAreAddedTo) {
  std::vector<double> at_level[kMaxOptLevel + 1];
  for (const int level : {0, 1, 2}) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Step("h_next = Sum(x_t, w)");
    OperatorDef r = ParseOp("r, r_sizes = Concat(h_next_grad, h_next_grad)");
    OperatorDef s = ParseOp("s, s_sizes = Concat(h_next_grad, h_next_grad)");
    for (OperatorDef* op : {&r, &s}) AddInt(op, "axis", 0);
    net.BackwardStep(r).BackwardStep("w_step = Tanh(h_next_grad)").BackwardStep(s).BackwardStep("p = Sum(r, s)");
    // The rows of p are the one before and the one that was read.
    net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("p", "h_grad", 0, 2);
    net.Param("w", "w_step").Output("h_all", "h", 1).OutputGradient("h_all").WithGradient();
    Workspace workspace;
    workspace.SetTensor("x", Random({3, 1, 2}, 1));
    workspace.SetTensor("h0", Random({1, 2}, 2));
    workspace.SetTensor("w", Random({1, 1, 2}, 3));
    workspace.SetTensor("h_all_grad", Random({3, 1, 2}, 4));
    BackwardPlanOf(net.Build(), workspace, {.opt_level = level});
    at_level[level] = Values(workspace.GetTensor("w_grad"));
  }
  EXPECT_EQ(at_level[0], at_level[1]);
  for (size_t i = 0; i < at_level[0].size(); ++i) EXPECT_NEAR(at_level[0][i], at_level[2][i], 1e-14);
}

TEST(Sums, AnOperatorDoesNotAddToBytesThatItReads) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("h_next = Sum(x_t, h_prev)");
  OperatorDef product = ParseOp("d = MatMul(h_next_grad, w)");
  AddInt(&product, "axis_a", 2);
  net.BackwardStep(product).BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("d", "h_grad", 0, 2);
  net.Output("h_all", "h", 1).OutputGradient("h_all").WithGradient();
  Workspace workspace;
  workspace.SetTensor("x", Random({3, 1, 2}, 1));
  workspace.SetTensor("h0", Tensor::Of<double>({1, 2}, {0, 0}));
  workspace.SetTensor("w", Tensor::Of<double>({2, 4}, {1, 0, 0, 1, 0, 1, 1, 0}));
  workspace.SetTensor("h_all_grad", Tensor::Of<double>({3, 1, 2}, {0, 0, 0, 0, 1, 2}));
  const StepPlan plan = BackwardPlanOf(net.Build(), workspace);
  EXPECT_EQ(WhoAddsTo(plan, "h_grad"), std::vector<std::string>{"+="});
  // (a, b) w = (a, b, b, a): each step adds its row to the one before and, the other way round, to itself.
  EXPECT_EQ(Values(workspace.GetTensor("h_grad")), (std::vector<double>{1, 2, 3, 3, 3, 3, 3, 3}));
}

// y = x as an operator that is given blobs.
const Registration through_blobs =
    Operator("test.ThroughBlobs")
        .Input("x", "any")
        .Output("y", "as x")
        .Cpu({.make = [](const OperatorCall&) -> RunFn {
                return
                    [](const OpRun& run) { run.host().Output(0).SetTensor(run.host().Input(0).GetTensor().Clone()); };
              },
              .takes_blobs = true});

TEST(Sums, ALargeTermOfADynamicBlobIsAddedOnce) {
  const Shape row({1, 50'000});
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Step("h_next = Sum(x_t, w)");
  net.BackwardStep("w_step = test.ThroughBlobs(h_next_grad)").BackwardLink("h_next_grad", "h_grad", 1);
  net.Param("w", "w_step").Output("h_all", "h", 1).OutputGradient("h_all").WithGradient();
  Workspace workspace;
  workspace.SetTensor("x", Random(row.Inserted(0, 3), 1));
  workspace.SetTensor("h0", Random(row, 2));
  workspace.SetTensor("w", Random(row.Inserted(0, 1), 3));
  workspace.SetTensor("h_all_grad", Tensor::Of<double>(row.Inserted(0, 3), std::vector<double>(150'000, 1)));
  BackwardPlanOf(net.Build(), workspace, {.executor = "parallel", .threads = 4});
  EXPECT_EQ(Values(workspace.GetTensor("w_grad")), std::vector<double>(50'000, 3));
}

// The shape of g is known when FCGradient reads it; that of its first value is not, so all of g lives in blobs.
TEST(Sums, AnOperatorThatReadsADynamicBlobAddsEachTerm) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Captured("b");
  OperatorDef fc = ParseOp("h_next = FC(x_t, w, b)"), gradient = ParseOp("w_step, b_step = FCGradient(x_t, w, g)");
  for (OperatorDef* op : {&fc, &gradient}) AddInt(op, "axis", 2);
  net.Step(fc).BackwardStep("g = test.ThroughBlobs(h_next_grad)").BackwardStep("unused = Copy(g)");
  net.BackwardStep("g = Copy(h_next_grad)").BackwardStep(gradient).BackwardLink("h_next_grad", "h_grad", 1);
  net.Param("w", "w_step").Param("b", "b_step").Output("h_all", "h", 1).OutputGradient("h_all").WithGradient();
  FeedElman(net.workspace());
  net.Feed("h_all_grad", Tensor::Of<double>({4, 2, 3}, std::vector<double>(24, 1))).Run();
  EXPECT_EQ(Values(net.Get("b_grad")), std::vector<double>(3, 8));
}

}  // namespace
}  // namespace stepnet
