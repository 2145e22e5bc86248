// Gradients of gates that are written one by one: those of level 2, which become one (merge_gradients), beside those of
// level 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "recurrent_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"

namespace stepnet {
namespace {

constexpr std::int64_t kInputs = 3, kUnits = 4, kBatch = 2;
const std::vector<std::string> kGates = {"i", "f", "g"};

OperatorDef Fc(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

// h = i f + g h_prev, where each gate has weights of x and h, and a bias that is added at another place.
NetDef TrainingNet() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  for (const std::string& g : kGates) {
    net.Captured("w" + g).Captured("u" + g).Captured("b" + g);
  }
  net.Step(Fc("i_x = FC(x_t, wi)")).Step(Fc("i_h = FC(h_prev, ui)")).Step("i_s = Add(i_x, i_h)");
  net.Step("i_a = Add(i_s, bi)").Step("i = Sigmoid(i_a)");
  net.Step(Fc("f_h = FC(h_prev, uf)")).Step("f_s = Add(bf, f_h)").Step(Fc("f_x = FC(x_t, wf)"));
  net.Step("f_a = Add(f_s, f_x)").Step("f = Sigmoid(f_a)");
  net.Step(Fc("g_h = FC(h_prev, ug, bg)")).Step(Fc("g_x = FC(x_t, wg)")).Step("g_a = Add(g_x, g_h)");
  net.Step("g = Tanh(g_a)").Step("p = Mul(i, f)").Step("q = Mul(g, h_prev)").Step("h_next = Add(p, q)");
  net.Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  std::vector<std::string> inputs = {"x", "h0"};
  for (const std::string& g : kGates) inputs.insert(inputs.end(), {"w" + g, "u" + g, "b" + g});
  return AddGradients(def, {"h_all"}, inputs).net;
}

void Feed(std::int64_t steps, DType dtype, Workspace& workspace) {
  workspace.SetTensor("x", Random({steps, kBatch, kInputs}, 1, dtype));
  workspace.SetTensor("h0", Random({kBatch, kUnits}, 2, dtype));
  unsigned seed = 3;
  for (const std::string& g : kGates) {
    workspace.SetTensor("w" + g, Random({kUnits, kInputs}, seed++, dtype));
    workspace.SetTensor("u" + g, Random({kUnits, kUnits}, seed++, dtype));
    workspace.SetTensor("b" + g, Random({kUnits}, seed++, dtype));
  }
}

// The instructions of this type in the plan of that direction.
std::int64_t Count(const StepPlan& plan, const std::string& type) {
  return std::ranges::count(plan.instructions, type, &Instruction::type);
}

TEST(MergedGradients, AreThoseOfLevel0) {
  NEEDS_ALL_PASSES();
  const NetDef def = TrainingNet();
  for (const std::int64_t steps : {0, 1, 5, 40}) {
    Workspace expected, given;
    Feed(steps, DType::kDouble, expected);
    Feed(steps, DType::kDouble, given);
    Net::Create(def, expected, {.opt_level = 0})->Run();
    StepPlan forward, backward;
    RunOptions options;
    options.on_plan = [&](const StepPlan& plan) { (plan.backward ? backward : forward) = plan; };
    const std::unique_ptr<Net> net = Net::Create(def, given, options);
    net->Run();
    net->Run();  // what is added up begins anew
    EXPECT_EQ(Count(forward, "FC"), 0);
    EXPECT_EQ(Count(forward, "FCOfPartsWithBias"), 1) << "of x";
    EXPECT_EQ(Count(forward, "FCOfParts"), 1) << "of h";
    EXPECT_EQ(Count(backward, "FCGradient"), 0);
    EXPECT_EQ(Count(backward, "SumReduceLike"), 0);
    EXPECT_EQ(Count(backward, "FCGradientOfParts"), 4) << "two of x and two of h: gradients of weights come at the end";
    for (const std::string& blob : expected.LocalBlobs()) {
      if (!blob.ends_with("_grad") && blob != "h_all") continue;
      const std::vector<double> a = Values(expected.GetTensor(blob)), b = Values(given.GetTensor(blob));
      ASSERT_EQ(a.size(), b.size()) << blob;
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(a[i]))) << blob << " " << i << ", " << steps << " steps";
      }
    }
  }
}

TEST(MergedGradients, HaveTheSameBitsOnAnyNumberOfThreads) {
  const NetDef def = TrainingNet();
  std::map<std::string, Tensor> expected;
  for (const int threads : {1, 2, 3}) {
    Workspace workspace;
    Feed(40, DType::kFloat, workspace);
    Net::Create(def, workspace, {.threads = threads})->Run();
    for (const std::string& blob : workspace.LocalBlobs()) {
      if (!blob.ends_with("_grad")) continue;
      const auto [found, is_new] = expected.emplace(blob, workspace.GetTensor(blob));
      if (!is_new) ExpectSame(found->second, workspace.GetTensor(blob), StrCat(blob, " on ", threads, " threads"));
    }
  }
  EXPECT_GE(expected.size(), 11u);
}

}  // namespace
}  // namespace stepnet
