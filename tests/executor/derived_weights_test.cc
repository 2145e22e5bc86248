// Weights that steps derive from parameters: gradients of level 2, where they follow from sums over the steps, once
// behind all of them (pass sum_before_linear), beside those of level 0.
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

constexpr std::int64_t kInputs = 3, kUnits = 6;
using Shapes = std::map<std::string, Shape>;

// How a step makes the weight u [kUnits, kUnits] of h of parameters.
struct Derivation {
  std::string name;
  std::vector<OperatorDef> ops;
  Shapes parameters;
};

OperatorDef WithInts(const std::string& text, const std::string& argument, const std::vector<std::int64_t>& values) {
  OperatorDef op = ParseOp(text);
  AddInts(&op, argument, values);
  return op;
}

OperatorDef WithInt(const std::string& text, const std::string& argument, std::int64_t value) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, argument, value);
  return op;
}

std::vector<Derivation> Derivations() {
  const Shape square = {kUnits, kUnits};
  OperatorDef norm = WithInts("n2 = ReduceSum(vv)", "axes", {1});
  AddInt(&norm, "keepdims", 1);
  return {
      {"function", {ParseOp("u = Tanh(p)")}, {{"p", square}}},
      {"mask", {ParseOp("u = Mul(p, q)")}, {{"p", square}, {"q", square}}},
      {"both, as both are", {ParseOp("a = Tanh(p)"), ParseOp("u = Mul(a, p)")}, {{"p", square}}},
      {"weight norm",
       {ParseOp("vv = Mul(v, v)"), norm, ParseOp("n = Sqrt(n2)"), ParseOp("gv = Mul(g, v)"), ParseOp("u = Div(gv, n)")},
       {{"v", square}, {"g", {kUnits, 1}}}},
      {"softmax of rows", {WithInt("u = Softmax(p)", "axis", 1)}, {{"p", square}}},
      {"parts, transposed",
       {WithInt("a, a_sizes = Concat(p, q)", "axis", 1), ParseOp("u = Transpose(a)")},
       {{"p", {kUnits, 2}}, {"q", {kUnits, kUnits - 2}}}},
      {"another shape", {WithInts("u, u_old = Reshape(p)", "shape", {kUnits, kUnits})}, {{"p", {kUnits * kUnits}}}},
      {"product", {ParseOp("u = MatMul(p, q)")}, {{"p", {kUnits, 2}}, {"q", {2, kUnits}}}},
      {"difference of plain and derived", {ParseOp("a = Sigmoid(p)"), ParseOp("u = Sub(p, a)")}, {{"p", square}}},
  };
}

// h = tanh(x w + h_prev u + s(c) h_prev), where u also multiplies what was computed.
NetDef Forward(const Derivation& derivation) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("c");
  for (const auto& [name, shape] : derivation.parameters) net.Captured(name);
  for (const OperatorDef& op : derivation.ops) net.Step(op);
  net.Step(WithInt("of_x = FC(x_t, w)", "axis", 2)).Step(WithInt("of_h = FC(h_prev, u)", "axis", 2));
  net.Step("s = Sigmoid(c)").Step("kept = Mul(h_prev, s)").Step("sum = Sum(of_x, of_h, kept)").Step("a_t = Tanh(sum)");
  net.Step(WithInt("again = FC(a_t, u)", "axis", 2)).Step("h_next = Tanh(again)").Output("h_all", "h", 1);
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  return def;
}

std::vector<std::string> InputsOf(const Derivation& derivation) {
  std::vector<std::string> inputs = {"x", "h0", "w", "c"};
  for (const auto& [name, shape] : derivation.parameters) inputs.push_back(name);
  return inputs;
}

void Feed(const Derivation& derivation, std::int64_t steps, std::int64_t batch, Workspace& workspace,
          DType dtype = DType::kDouble) {
  workspace.SetTensor("x", Random({steps, batch, kInputs}, 1, dtype));
  workspace.SetTensor("h0", Random({batch, kUnits}, 2, dtype));
  workspace.SetTensor("w", Random({kUnits, kInputs}, 3, dtype));
  workspace.SetTensor("c", Random({kUnits}, 4, dtype));
  unsigned seed = 5;
  for (const auto& [name, shape] : derivation.parameters) workspace.SetTensor(name, Random(shape, seed++, dtype));
}

void ExpectNear(const Tensor& expected, const Tensor& found, const std::string& what) {
  const std::vector<double> a = Values(expected), b = Values(found);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(a[i]))) << what << " " << i;
}

// Each parameter's gradient with the request.
NetDef Training(const Derivation& derivation, const std::string& request = "") {
  NetDef net = Forward(derivation);
  if (!request.empty()) {
    std::vector<std::string> requests(InputsOf(derivation).size(), "write");
    // Outputs of the gradient operator are the sequence's, those of captured tensors and the initial state's.
    std::fill(requests.begin() + 1, requests.end() - 1, request);
    AddStrings(net.mutable_op(0), "gradient_requests", requests);
  }
  return AddGradients(net, {"h_all"}, InputsOf(derivation)).net;
}

// The instructions that run behind all steps of the plan.
std::int64_t NumBehind(const StepPlan& plan) {
  const Stage& last = plan.stages.back();
  return last.is_behind ? last.end - last.begin : 0;
}

TEST(DerivedWeights, HaveTheGradientsOfLevel0) {
  for (const Derivation& derivation : Derivations()) {
    const NetDef def = Training(derivation);
    for (const auto& [steps, batch] : std::vector<std::pair<int, int>>{{5, 2}, {1, 2}, {0, 2}, {40, 3}, {4, 0}}) {
      Workspace expected, found;
      Feed(derivation, steps, batch, expected);
      Feed(derivation, steps, batch, found);
      Net::Create(def, expected, {.opt_level = 0})->Run();
      StepPlan backward;
      RunOptions options;
      options.on_plan = [&](const StepPlan& plan) {
        if (plan.backward) backward = plan;
      };
      const std::unique_ptr<Net> net = Net::Create(def, found, options);
      net->Run();
      net->Run();  // what is added up begins anew
      if (TestedOptLevel() == kMaxOptLevel) {
        EXPECT_GT(NumBehind(backward), 0) << derivation.name;
      }
      for (const std::string& input : InputsOf(derivation)) {
        ExpectNear(expected.GetTensor(input + "_grad"), found.GetTensor(input + "_grad"),
                   StrCat(input, ", ", derivation.name, ", ", steps, " steps of ", batch));
      }
    }
  }
}

// Whatever the loop is: products and sums that stay in it add up step by step.
TEST(DerivedWeights, MayBeAddedUpInTheLoop) {
  NEEDS_ALL_PASSES();
  for (const Derivation& derivation : Derivations()) {
    const NetDef def = Training(derivation);
    Workspace expected;
    Feed(derivation, 40, 2, expected);
    Net::Create(def, expected, {.opt_level = 0})->Run();
    for (const int threads : {1, 3}) {
      Workspace found;
      Feed(derivation, 40, 2, found);
      Net::Create(def, found, {.threads = threads, .disabled_passes = {"form_stages"}})->Run();
      for (const std::string& input : InputsOf(derivation)) {
        ExpectNear(expected.GetTensor(input + "_grad"), found.GetTensor(input + "_grad"),
                   StrCat(input, ", ", derivation.name, " on ", threads, " threads"));
      }
    }
  }
}

TEST(DerivedWeights, HaveTheSameBitsOnAnyNumberOfThreads) {
  for (const Derivation& derivation : Derivations()) {
    const NetDef def = Training(derivation);
    std::map<std::string, Tensor> expected;
    for (const int threads : {1, 2, 3}) {
      Workspace workspace;
      Feed(derivation, 40, 16, workspace, DType::kFloat);
      Net::Create(def, workspace, {.threads = threads})->Run();
      for (const std::string& input : InputsOf(derivation)) {
        const auto [first, is_new] = expected.emplace(input, workspace.GetTensor(input + "_grad"));
        if (is_new) continue;
        ExpectSame(first->second, workspace.GetTensor(input + "_grad"), StrCat(input, ", ", derivation.name));
      }
    }
  }
}

TEST(DerivedWeights, AddTheirGradientsToWhatIsThere) {
  for (const Derivation& derivation : Derivations()) {
    const NetDef add = Training(derivation, "add"), none = Training(derivation, "none"), all = Training(derivation);
    for (const int steps : {0, 1, 7}) {
      Workspace expected, found, others;
      for (Workspace* workspace : {&expected, &found, &others}) Feed(derivation, steps, 2, *workspace);
      std::vector<std::string> parameters = InputsOf(derivation);
      parameters.erase(parameters.begin(), parameters.begin() + 2);
      for (const std::string& name : parameters) {
        found.SetTensor(name + "_grad", Random(found.GetTensor(name).shape(), 20));
      }
      Net::Create(all, expected, {.opt_level = 0})->Run();
      Net::Create(add, found)->Run();
      for (const std::string& name : parameters) {
        const Tensor sum = expected.GetTensor(name + "_grad"), before = Random(sum.shape(), 20);
        for (std::int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += before.data<double>()[i];
        ExpectNear(sum, found.GetTensor(name + "_grad"), StrCat(name, ", ", derivation.name, ", ", steps, " steps"));
      }
      StepPlan backward;
      RunOptions options;
      options.on_plan = [&](const StepPlan& plan) {
        if (plan.backward) backward = plan;
      };
      Net::Create(none, others, options)->Run();
      EXPECT_EQ(NumBehind(backward), 0) << derivation.name << ": nobody asks for these gradients";
      ExpectNear(expected.GetTensor("x_grad"), others.GetTensor("x_grad"), derivation.name);
    }
  }
}

// A weight that differs from step to step, as one that drops elements anew or follows from a state, stays in the loop.
TEST(DerivedWeights, StayInTheLoopWhereStepsDiffer) {
  NEEDS_ALL_PASSES();
  Derivation derivation{
      "of each step",
      {ParseOp("column = Cast(timestep)"), ParseOp("wave = Sin(column)"), ParseOp("u = Mul(p, wave)")},
      {{"p", {kUnits, kUnits}}}};
  AddString(&derivation.ops[0], "to", "double");
  AddString(&derivation.ops[0], "from_type", "int32");
  AddInt(&derivation.ops[2], "broadcast", 1);
  const NetDef def = Training(derivation);
  Workspace expected, found;
  Feed(derivation, 9, 2, expected);
  Feed(derivation, 9, 2, found);
  Net::Create(def, expected, {.opt_level = 0})->Run();
  Net::Create(def, found)->Run();
  for (const std::string& input : InputsOf(derivation)) {
    ExpectNear(expected.GetTensor(input + "_grad"), found.GetTensor(input + "_grad"), input);
  }
}

}  // namespace
}  // namespace stepnet
