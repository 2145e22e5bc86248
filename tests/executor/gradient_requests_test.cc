// Gradients that nobody asks for: neither computed nor given memory, and the others are the same bit for bit.
#include <algorithm>

#include "recurrent_case.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

const Feeds& TheFeeds() {
  static const Feeds feeds = {{"x", Random({40, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)},
                              {"b", Random({3}, 4)},        {"u", Random({3, 3}, 5)},  {"c", Random({3}, 6)}};
  return feeds;
}

// h = tanh(x w + b + h u + c)
NetDef Elman() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  for (const char* weight : {"w", "b", "u", "c"}) net.Captured(weight);
  OperatorDef of_x = ParseOp("p = FC(x_t, w, b)"), of_h = ParseOp("q = FC(h_prev, u, c)");
  AddInt(&of_x, "axis", 2);
  AddInt(&of_h, "axis", 2);
  net.Step(of_x).Step(of_h).Step("s = Sum(p, q)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  return net.Build();
}

// Runs the net; returns the backward plan.
std::string RunAndPlan(const NetDef& net, int opt_level, Workspace& workspace) {
  for (const auto& [name, tensor] : TheFeeds()) workspace.SetTensor(name, tensor);
  std::string text;
  RunOptions options{.opt_level = opt_level};
  options.on_plan = [&](const StepPlan& plan) {
    if (plan.backward) text = PlanText(plan);
  };
  RunNetOnce(net, workspace, options);
  return text;
}

NetWithGradients WithRequests(const std::vector<std::string>& requests) {
  NetDef net = Elman();
  AddBackwardStepNets(&net);
  if (!requests.empty()) AddStrings(net.mutable_op(0), "gradient_requests", requests);
  return AddGradients(net, {"h_all"}, {"x", "b", "c", "u", "w", "h0"});
}

// Outputs of the gradient operator: x, b, c, u, w, h0.
TEST(GradientRequests, LeaveOutWhatNobodyAsksFor) {
  for (const int opt_level : {0, 1, 2}) {
    Workspace all;
    const std::string whole = RunAndPlan(WithRequests({}).net, opt_level, all);
    for (const char* blob : {"w_grad", "b_grad", "u_grad", "c_grad", "x_t_grad"}) {
      EXPECT_NE(whole.find(blob), std::string::npos) << blob << " in\n" << whole;
    }
    const std::vector<std::vector<std::string>> lists = {{"write", "none", "none", "none", "none", "none"},
                                                         {"none", "none", "none", "write", "none", "none"},
                                                         {"none", "write", "none", "none", "write", "none"},
                                                         {"none", "none", "none", "none", "none", "write"}};
    for (const std::vector<std::string>& requests : lists) {
      Workspace some;
      const NetWithGradients made = WithRequests(requests);
      const std::string plan = RunAndPlan(made.net, opt_level, some);
      const std::vector<std::string> inputs = {"x", "b", "c", "u", "w", "h0"};
      for (size_t k = 0; k < inputs.size(); ++k) {
        const std::string gradient = (k == 0 ? "x_t" : inputs[k]) + "_grad";
        if (requests[k] == "none") {
          EXPECT_EQ(plan.find(gradient), std::string::npos) << gradient << " in\n" << plan;
          EXPECT_FALSE(made.gradients.contains(inputs[k]));
          continue;
        }
        ExpectSame(some.GetTensor(inputs[k] + "_grad"), all.GetTensor(inputs[k] + "_grad"), gradient);
      }
    }
  }
}

// What the gradient of weights alone reads.
TEST(GradientRequests, KeepNothingOfTheForwardRunForThem) {
  for (const std::string request : {"write", "none"}) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("v").Step("square = Mul(x_t, x_t)");
    net.Step("p = Mul(square, v)").Step("h_next = Sum(p, h_prev)").Output("h_all", "h", 1);
    NetDef def = net.Build();
    AddBackwardStepNets(&def);
    AddStrings(def.mutable_op(0), "gradient_requests", {"write", request, "write"});
    Workspace workspace;
    for (const auto& [name, tensor] : TheFeeds()) workspace.SetTensor(name, tensor);
    workspace.SetTensor("v", Random({1, 2, 3}, 7));
    StepPlan forward;
    RunOptions options{.opt_level = 0};
    options.on_plan = [&](const StepPlan& plan) { forward = plan; };
    RunNetOnce(def, workspace, options);
    const bool is_kept = forward.slots[forward.finals.at("square").slot].storage_class == StorageClass::kStacked;
    EXPECT_EQ(is_kept, request == "write");
  }
}

struct WhatARunTakes {
  size_t forward_instructions = 0, backward_instructions = 0, operators = 0;
  std::int64_t peak_bytes = 0;  // of tensors

  friend bool operator==(const WhatARunTakes&, const WhatARunTakes&) = default;
};

// Runs a net of Elman and its gradients, with weights that are large beside all else.
WhatARunTakes TakenBy(const NetDef& net, int opt_level) {
  constexpr std::int64_t kSize = 128;
  Workspace workspace;
  workspace.SetTensor("x", Random({3, 2, kSize}, 1));
  workspace.SetTensor("h0", Random({2, kSize}, 2));
  for (const char* blob : {"w", "u"}) workspace.SetTensor(blob, Random({kSize, kSize}, 3));
  for (const char* blob : {"b", "c"}) workspace.SetTensor(blob, Random({kSize}, 4));
  WhatARunTakes taken{.operators = static_cast<size_t>(net.op_size())};
  RunOptions options{.opt_level = opt_level};
  options.on_plan = [&](const StepPlan& plan) {
    (plan.backward ? taken.backward_instructions : taken.forward_instructions) = plan.instructions.size();
  };
  ResetPeakTensorMemory();
  const std::int64_t before = TensorMemory().current;
  RunNetOnce(net, workspace, options);
  taken.peak_bytes = TensorMemory().peak - before;
  return taken;
}

// What `none` takes is what a net takes that was made for the other gradients alone.
TEST(GradientRequests, NoneIsNeitherComputedNorGivenMemory) {
  constexpr std::int64_t kBytesOfWeight = 128 * 128 * 8;
  NetDef trained = Elman();
  AddBackwardStepNets(&trained);  // for all gradients
  for (const int opt_level : {0, 1, 2}) {
    const WhatARunTakes all = TakenBy(AddGradients(trained, {"h_all"}, {"x", "b", "w", "u"}).net, opt_level);
    // One instruction gives the gradients of x, b and w.
    for (const std::vector<std::string>& others : {std::vector<std::string>{"x", "b", "u"}, {"u"}}) {
      GradientRequests requests;
      for (const char* input : {"x", "b", "w"}) {
        if (std::ranges::count(others, input) == 0) requests[input] = GradientRequest::kNone;
      }
      const WhatARunTakes some =
          TakenBy(AddGradients(trained, {"h_all"}, {"x", "b", "w", "u"}, requests).net, opt_level);
      EXPECT_LT(some.backward_instructions, all.backward_instructions + (others.size() > 1 ? 1 : 0));
      EXPECT_LE(some.peak_bytes, all.peak_bytes - kBytesOfWeight);
      NetDef alone = Elman();
      AddBackwardStepNets(&alone, others);
      EXPECT_EQ(some, TakenBy(AddGradients(alone, {"h_all"}, others).net, opt_level)) << opt_level;
    }
    const NetDef none = AddGradients(trained, {"h_all"}, {"w"}, {{"w", GradientRequest::kNone}}).net;
    const WhatARunTakes nothing = TakenBy(none, opt_level), forward = TakenBy(Elman(), opt_level);
    EXPECT_EQ(nothing, forward) << opt_level;
  }
}

// The run has a sum of its own, which it gives to the caller when nothing can fail any more.
TEST(GradientRequests, AddTakesTheMemoryOfTheGradientOnceMore) {
  NetDef net = Elman();
  AddBackwardStepNets(&net, std::vector<std::string>{"w"});
  const NetDef writing = AddGradients(net, {"h_all"}, {"w"}).net;
  const NetDef adding = AddGradients(net, {"h_all"}, {"w"}, {{"w", GradientRequest::kAdd}}).net;
  const auto bytes_of = [&](const NetDef& def) {
    Workspace workspace;
    for (const auto& [name, tensor] : TheFeeds()) workspace.SetTensor(name, tensor);
    workspace.SetTensor("w_grad", Random({3, 3}, 9));
    const std::int64_t before = TensorMemory().current;  // with the feeds, which live as long as the tests
    const std::unique_ptr<Net> running = Net::Create(def, workspace, {.threads = 1});
    ResetPeakTensorMemory();
    running->Run();
    running->Run();
    return TensorMemory().peak - before;
  };
  EXPECT_EQ(bytes_of(adding), bytes_of(writing) + static_cast<std::int64_t>(9 * sizeof(double)));
}

TEST(AddBackwardStepNets, MakesGradientsByInputsAlone) {
  NetDef net = Elman();
  AddBackwardStepNets(&net, std::vector<std::string>{"x"});
  const NetWithGradients made = AddGradients(net, {"h_all"}, {"x"});
  EXPECT_EQ(made.gradients.size(), 1u);
  NetDef whole = Elman();
  AddBackwardStepNets(&whole);
  Workspace some, all;
  for (const int opt_level : {0, 1, 2}) {
    const std::string plan = RunAndPlan(made.net, opt_level, some);
    for (const char* blob : {"w_grad", "b_grad", "u_grad", "c_grad"}) {
      EXPECT_EQ(plan.find(blob), std::string::npos) << blob << " in\n" << plan;
    }
    RunAndPlan(AddGradients(whole, {"h_all"}, {"x"}).net, opt_level, all);
    ExpectSame(some.GetTensor("x_grad"), all.GetTensor("x_grad"), StrCat("level ", opt_level));
  }
  EXPECT_FALSE(some.GetBlob("h0_grad").HasTensor());
}

TEST(AddGradients, TellsLayersWhichGradientsNobodyNeeds) {
  NetDef net;
  *net.add_op() = ParseOp("y = FC(x, w, b)");
  const auto gradient_of = [&](const std::vector<std::string>& inputs) {
    const NetWithGradients made = AddGradients(net, {"y"}, inputs);
    Workspace workspace;
    for (const auto& [name, tensor] : TheFeeds()) {
      workspace.SetTensor(name, name == "x" ? tensor.Slice(0, 2).Reshaped(Shape({4, 3})) : tensor);
    }
    RunNetOnce(made.net, workspace);
    std::vector<std::string> shapes;
    for (const std::string& output : made.net.op().rbegin()->output()) {
      shapes.push_back(workspace.GetTensor(output).shape().ToString());
    }
    return Join(shapes, ", ");
  };
  EXPECT_EQ(gradient_of({"x", "w", "b"}), "[3, 3], [3], [4, 3]");
  EXPECT_EQ(gradient_of({"x"}), "[0], [0], [4, 3]");
  EXPECT_EQ(gradient_of({"b"}), "[0], [3], [0]");
}

}  // namespace
}  // namespace stepnet
