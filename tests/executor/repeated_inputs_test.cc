// Steps whose operators repeat inputs by shape: their plans sum what was repeated, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>

#include "recurrent_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"

namespace stepnet {
namespace {

struct Plans {
  StepPlan forward, backward;
};

Plans RunNet(const NetDef& def, Workspace& workspace, int opt_level) {
  Plans plans;
  RunOptions options{.opt_level = opt_level};
  options.on_plan = [&](const StepPlan& plan) { (plan.backward ? plans.backward : plans.forward) = plan; };
  Net::Create(def, workspace, options)->Run();
  return plans;
}

// h = tanh((x - mean of x) * h_prev + b): "minus", the mean with another sign, is [1, B, 1] and b is [D].
NetDef Centred() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("b");
  OperatorDef mean = ParseOp("mean = ReduceMean(x_t)");
  AddInts(&mean, "axes", {2});
  net.Step(mean)
      .Step("minus = Negative(mean)")
      .Step("d = Add(minus, x_t)")
      .Step("p = Mul(d, h_prev)")
      .Step("q = Add(b, p)")
      .Step("h_next = Tanh(q)");
  NetDef def = net.Output("h_all", "h", 1).Build();
  AddBackwardStepNets(&def);
  return AddGradients(def, {"h_all"}, {"x", "h0", "b"}).net;
}

void Feed(Workspace& workspace) {
  workspace.SetTensor("x", Random({4, 2, 3}, 1));
  workspace.SetTensor("h0", Random({2, 3}, 2));
  workspace.SetTensor("b", Random({3}, 3));
}

// Those that are instructions, and what they give that are part of a region.
std::vector<std::string> Sums(const StepPlan& plan) {
  std::vector<std::string> sums;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.type == "SumReduceLike") sums.push_back(instruction.text);
    const bool has_sum = instruction.text.find(", SumReduceLike") != std::string::npos;
    if (instruction.type == "Region" && has_sum) sums.push_back("in a region");
  }
  std::ranges::sort(sums);
  return sums;
}

TEST(RepeatedInputs, AreSummedInPlansAndOthersAreNot) {
  for (const int opt_level : {0, 1, 2}) {
    Workspace workspace;
    Feed(workspace);
    const Plans plans = RunNet(Centred(), workspace, opt_level);
    const char* const within = opt_level == 0 ? "minus_grad = SumReduceLike(d_grad, minus)" : "in a region";
    EXPECT_EQ(Sums(plans.backward), (std::vector<std::string>{"b_grad = SumReduceLike(q_grad, b)", within}));
    for (const Slot& slot : plans.backward.slots) EXPECT_EQ(slot.blob.find("pre_red"), std::string::npos) << slot.blob;
  }
}

// What targets that take copies of many steps at once do with it.
TEST(RepeatedInputs, OfAllStepsAreSummedAtOnce) {
  NEEDS_ALL_PASSES();
  constexpr Target kAtOnce = {.takes_all_over_time = true};
  Workspace by_steps, at_once;
  for (const bool is_at_once : {false, true}) {
    Workspace& workspace = is_at_once ? at_once : by_steps;
    Feed(workspace);
    StepPlan plan;
    RunOptions options{.target = is_at_once ? &kAtOnce : &kCpuTarget};
    options.on_plan = [&](const StepPlan& made) {
      if (made.backward) plan = made;
    };
    Net::Create(Centred(), workspace, options)->Run();
    const auto sum = std::ranges::find(plan.instructions, "b_grad = SumReduceLike(q_grad, b)", &Instruction::text);
    ASSERT_NE(sum, plan.instructions.end());
    EXPECT_EQ(sum->steps_at_once, is_at_once ? kAllSteps : 1);
    EXPECT_EQ(sum->outputs[0].added, !is_at_once);
    EXPECT_FALSE(std::ranges::any_of(
        plan.instructions, [](const Instruction& instruction) { return instruction.text == "b_grad += b_grad"; }));
  }
  const std::vector<double> expected = Values(by_steps.GetTensor("b_grad")),
                            found = Values(at_once.GetTensor("b_grad"));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12);
}

TEST(RepeatedInputs, AreNotKeptForTheirShapes) {
  Workspace workspace;
  Feed(workspace);
  const Plans plans = RunNet(Centred(), workspace, /*opt_level=*/0);
  const auto class_of = [&](const std::string& blob) {
    return std::ranges::find(plans.forward.slots, blob, &Slot::blob)->storage_class;
  };
  EXPECT_EQ(class_of("minus"), StorageClass::kRing);
  EXPECT_EQ(class_of("p"), StorageClass::kRing);
  EXPECT_EQ(class_of("d"), StorageClass::kStacked);  // Mul's gradient reads it
}

TEST(RepeatedInputs, HaveTheGradientsOfDifferences) {
  for (const int opt_level : {0, 1, 2}) {
    Workspace workspace;
    Feed(workspace);
    const RunOptions options{.opt_level = opt_level};
    const std::unique_ptr<Net> net = Net::Create(Centred(), workspace, options);
    const auto loss = [&] {
      net->Run();
      double sum = 0;
      for (const double value : Values(workspace.GetTensor("h_all"))) sum += value;
      return sum;
    };
    for (const char* input : {"x", "h0", "b"}) {
      const Tensor tensor = workspace.GetTensor(input);
      const std::map<std::int64_t, double> expected = Differences(tensor, loss);
      net->Run();
      const std::vector<double> found = Values(workspace.GetTensor(std::string(input) + "_grad"));
      ASSERT_EQ(static_cast<std::int64_t>(found.size()), tensor.size());
      for (const auto& [i, difference] : expected) EXPECT_NEAR(found[i], difference, 1e-8) << input << " " << i;
    }
  }
}

}  // namespace
}  // namespace stepnet
