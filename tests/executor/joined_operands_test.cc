// Products of values that lie side by side, as the input beside the state: split_products makes of each a sum.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"

namespace stepnet {
namespace {

// h = tanh((x, h) w^T + b), [T, 2, 3] and [2, 3] of x and h.
RecurrentCase ElmanOfOneProduct() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  OperatorDef concat = ParseOp("j, sizes = Concat(x_t, h_prev)"), fc = ParseOp("g = FC(j, w, b)");
  AddInt(&concat, "axis", -1);
  AddInt(&fc, "axis", -1);
  net.Step(concat).Step(fc).Step("h_next = Tanh(g)").Output("h_all", "h", 1);
  return net;
}

const std::vector<std::pair<std::string, Tensor>> kFeeds = {
    {"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 6}, 3)}, {"b", Random({3}, 4)}};

std::vector<StepPlan> PlansOf(const NetDef& net) {
  Workspace workspace;
  for (const auto& [name, tensor] : kFeeds) workspace.SetTensor(name, tensor);
  std::vector<StepPlan> plans;
  Net::Create(net, workspace, {.on_plan = [&](const StepPlan& plan) { plans.push_back(plan); }})->Run();
  return plans;
}

// Types of the instructions that wait for the step before.
std::vector<std::string> TypesInLoop(const StepPlan& plan) {
  std::vector<std::string> types;
  for (const Stage& stage : plan.stages) {
    for (int n = stage.begin; n < stage.end && stage.steps_at_once == 1; ++n) {
      types.push_back(plan.instructions[n].type);
    }
  }
  return types;
}

TEST(JoinedOperands, TheLoopHasNoProductOfTheInput) {
  NEEDS_USUAL_PLANS();
  NetDef net = ElmanOfOneProduct().Build();
  AddBackwardStepNets(&net);
  const std::vector<StepPlan> plans = PlansOf(AddGradients(net, {"h_all"}, {"x", "h0", "w", "b"}).net);
  ASSERT_EQ(plans.size(), 2u);
  // The gradient of w reads both side by side.
  EXPECT_EQ(TypesInLoop(plans[0]), (std::vector<std::string>{"FC", "Concat", "Tanh"}));
  EXPECT_EQ(TypesInLoop(plans[1]), (std::vector<std::string>{"TanhGradient", "FCTransposed"}));
  for (const StepPlan& plan : plans) {
    EXPECT_TRUE(std::ranges::any_of(plan.stages, [](const Stage& stage) { return stage.steps_at_once > 1; }))
        << "the input's product runs for many steps at once";
  }
}

TEST(JoinedOperands, GradientsMatch) { ExpectMadeGradientsMatch(ElmanOfOneProduct().Build(), {"h_all"}, kFeeds); }

}  // namespace
}  // namespace stepnet
