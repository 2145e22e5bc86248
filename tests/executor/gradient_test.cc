// RecurrentNetworkGradient against central differences in double. Names of tests cite the rules of
// docs/caffe2_compatibility.md.
#include "stepnet/nets/gradient.h"

#include "recurrent_case.h"
#include "stepnet/nets/backward.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

// h[t] = x[t] * (x[t] + h[t-1]).
RecurrentCase SumMulCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Sum(x_t, h_prev)").Step("h_next = Mul(x_t, s)").Output("h_all", "h", 1).Output("h_last", "h", -1);
  net.BackwardStep("dx1 = Mul(h_next_grad, s)").BackwardStep("s_grad = Mul(h_next_grad, x_t)");
  net.BackwardStep("x_t_grad = Sum(dx1, s_grad)");
  net.BackwardLink("h_next_grad", "h_grad", 1)
      .BackwardLink("s_grad", "h_grad", 0)
      .BackwardLink("x_t_grad", "x_grad", 0);
  return net;
}

Feeds SumMulFeeds(std::int64_t steps, std::int64_t batch = 2) {
  return {{"x", Random({steps, batch, 3}, 1)}, {"h0", Random({batch, 3}, 2)}};
}

// h[t] = x[t] * FC(h[t-1]).
RecurrentCase FcCase() {
  RecurrentCase net;
  OperatorDef fc = ParseOp("f = FC(h_prev, w, b)");
  AddInt(&fc, "axis", 2);
  OperatorDef fc_gradient = ParseOp("w_grad, b_grad, h_prev_grad = FCGradient(h_prev, w, f_grad)");
  AddInt(&fc_gradient, "axis", 2);
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  net.Step(fc).Step("h_next = Mul(x_t, f)").Output("h_all", "h", 1).Output("h_last", "h", -1);
  net.BackwardStep("x_t_grad = Mul(h_next_grad, f)").BackwardStep("f_grad = Mul(h_next_grad, x_t)");
  net.BackwardStep(fc_gradient);
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
  net.BackwardLink("x_t_grad", "x_grad", 0).Param("w", "w_grad").Param("b", "b_grad");
  return net;
}

Feeds FcFeeds(std::int64_t steps) {
  return {{"x", Random({steps, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"w", Random({3, 3}, 3)}, {"b", Random({3}, 4)}};
}

TEST(RecurrentGradient, MatchesDifferencesForAnyT) {
  for (const std::int64_t steps : {0, 1, 2, 5}) {
    for (const std::vector<std::string>& outputs :
         std::vector<std::vector<std::string>>{{"h_all"}, {"h_last"}, {"h_all", "h_last"}}) {
      ExpectGradientsMatch(
          [&] {
            RecurrentCase net = SumMulCase();
            for (const std::string& output : outputs) net.OutputGradient(output);
            net.WithGradient();
            return net;
          },
          SumMulFeeds(steps), outputs);
      ExpectGradientsMatch(
          [&] {
            RecurrentCase net = FcCase();
            for (const std::string& output : outputs) net.OutputGradient(output);
            net.WithGradient();
            return net;
          },
          FcFeeds(steps), outputs);
    }
  }
}

TEST(RecurrentGradient, D1NoStepsHandTheGradientToTheInitialState) {
  RecurrentCase net = FcCase();
  net.OutputGradient("h_last").WithGradient();
  for (const auto& [name, tensor] : FcFeeds(0)) net.Feed(name, tensor);
  const Tensor gradient = Random({1, 2, 3}, 7);
  net.Feed("h_last_grad", gradient).Run();
  EXPECT_EQ(Values(net.Get("h0_grad")), Values(gradient));
  EXPECT_EQ(Values(net.Get("w_grad")), std::vector<double>(9, 0.0));
  EXPECT_EQ(net.Get("x_grad").shape(), Shape({0, 2, 3}));
}

TEST(RecurrentGradient, D2AcceptsAnEmptyBatch) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  for (const auto& [name, tensor] : SumMulFeeds(3, 0)) net.Feed(name, tensor);
  net.Feed("h_all_grad", Random({3, 0, 3}, 7)).Run();
  EXPECT_EQ(net.Get("x_grad").shape(), Shape({3, 0, 3}));
}

TEST(RecurrentGradient, D3GivesWhatAFreshNetGivesAsTChanges) {
  const auto make = [] {
    RecurrentCase net = FcCase();
    net.OutputGradient("h_all").WithGradient();
    return net;
  };
  RecurrentCase lasting = make();
  for (const std::int64_t steps : {5, 0, 1, 100, 3, 0, 7}) {
    RecurrentCase fresh = make();
    for (RecurrentCase* net : {&lasting, &fresh}) {
      for (const auto& [name, tensor] : FcFeeds(steps)) net->Feed(name, tensor);
      net->Feed("h_all_grad", Random({steps, 2, 3}, 9)).Run();
    }
    for (const char* blob : {"x_grad", "w_grad", "b_grad", "h0_grad"}) {
      ExpectSame(lasting.Get(blob), fresh.Get(blob), blob);
    }
  }
}

TEST(RecurrentGradient, D8SeveralSequencesAreDifferentiable) {
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").Sequence("y", "y_t").State("h", "h0", "h_prev", "h_next");
    net.Step("s = Mul(x_t, y_t)").Step("h_next = Sum(s, h_prev)").Output("h_all", "h", 1);
    net.BackwardStep("x_t_grad = Mul(h_next_grad, y_t)").BackwardStep("y_t_grad = Mul(h_next_grad, x_t)");
    net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_next_grad", "h_grad", 0);
    net.BackwardLink("x_t_grad", "x_grad", 0).BackwardLink("y_t_grad", "y_grad", 0).Param("y", "y_t_grad");
    net.OutputGradient("h_all").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, {{"x", Random({4, 2, 3}, 1)}, {"y", Random({4, 2, 3}, 2)}, {"h0", Random({2, 3}, 3)}},
                       {"h_all"});
}

TEST(RecurrentGradient, D9InitialStatesThatAreRepeatedGetTheSum) {
  const auto make = [] {
    RecurrentCase net = SumMulCase();
    net.OutputGradient("h_all").WithGradient();
    return net;
  };
  for (const Shape& shape : {Shape({3}), Shape({1, 3}), Shape({1, 1, 3}), Shape({1, 2, 3})}) {
    ExpectGradientsMatch(make, {{"x", Random({4, 2, 3}, 1)}, {"h0", Random(shape, 2)}}, {"h_all"});
  }
}

TEST(RecurrentGradient, G1TheInputsGradientIsNotFoundByName) {
  // The sequence is used elsewhere too, so its gradient operator writes under another name.
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient({"_x_grad_autosplit_0", "h0_grad"});
  RecurrentCase plain = SumMulCase();
  plain.OutputGradient("h_all").WithGradient();
  for (RecurrentCase* each : {&net, &plain}) {
    for (const auto& [name, tensor] : SumMulFeeds(4)) each->Feed(name, tensor);
    each->Feed("h_all_grad", Random({4, 2, 3}, 9)).Run();
  }
  ExpectSame(net.Get("_x_grad_autosplit_0"), plain.Get("x_grad"), "x_grad");
}

// Two states that start from the same blob: a[t] = x a[t-1], b[t] = x + b[t-1].
RecurrentCase SharedInitialCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "s0", "a_prev", "a_next").State("b", "s0", "b_prev", "b_next");
  net.Step("a_next = Mul(x_t, a_prev)")
      .Step("b_next = Sum(x_t, b_prev)")
      .Output("a_all", "a", 1)
      .Output("b_all", "b", 1);
  net.BackwardStep("dx = Mul(a_next_grad, a_prev)").BackwardStep("a_prev_grad = Mul(a_next_grad, x_t)");
  net.BackwardStep("x_t_grad = Sum(dx, b_next_grad)");
  net.BackwardLink("a_next_grad", "a_grad", 1).BackwardLink("a_prev_grad", "a_grad", 0);
  net.BackwardLink("b_next_grad", "b_grad", 1).BackwardLink("b_next_grad", "b_grad", 0);
  net.BackwardLink("x_t_grad", "x_grad", 0).OutputGradient("a_all").OutputGradient("b_all").WithGradient();
  return net;
}

TEST(RecurrentGradient, G2ABlobThatIsUsedTwiceGetsTheSum) {
  ExpectGradientsMatch(SharedInitialCase, {{"x", Random({4, 2, 3}, 1)}, {"s0", Random({2, 3}, 2)}}, {"a_all", "b_all"});
}

TEST(RecurrentGradient, G3OutputsAreFoundByNameNotByTheOrderOfAliases) {
  const auto make = [] {
    RecurrentCase net = SumMulCase();
    net.OutputGradient("h_all").WithGradient();
    return net;
  };
  NetDef def = make().Build();
  for (OperatorDef& op : *def.mutable_op()) {
    for (Argument& argument : *op.mutable_arg()) {  // the same aliases, in the other order
      if (argument.name() == "alias_dst") argument.mutable_strings()->SwapElements(0, 1);
      if (argument.name() == "alias_offset") argument.mutable_ints()->SwapElements(0, 1);
    }
  }
  RecurrentCase plain = make();
  Workspace workspace;
  std::vector<std::pair<std::string, Tensor>> feeds = SumMulFeeds(4);
  feeds.emplace_back("h_all_grad", Random({4, 2, 3}, 9));
  for (const auto& [name, tensor] : feeds) {
    plain.Feed(name, tensor.Clone());
    workspace.SetTensor(name, tensor.Clone());
  }
  plain.Run();
  RunNetOnce(def, workspace);
  ExpectSame(workspace.GetTensor("x_grad"), plain.Get("x_grad"), "x_grad");
}

TEST(RecurrentGradient, G4GradientsOfEqualAliasesAreSummed) {
  const auto make = [] {
    RecurrentCase net = SumMulCase();
    net.Output("h_again", "h", 1).OutputGradient("h_all").OutputGradient("h_again").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, SumMulFeeds(4), {"h_all", "h_again"});
}

TEST(RecurrentGradient, AnOutputThatIsListedTwiceHasOneGradient) {
  const auto x_grad = [](bool twice) {
    RecurrentCase net = SumMulCase();
    if (twice) net.Output("h_all", "h", 1);
    Workspace workspace;
    for (const auto& [name, tensor] : SumMulFeeds(4)) workspace.SetTensor(name, tensor);
    RunNetOnce(AddGradients(net.Build(), {"h_all"}, {"x"}).net, workspace);
    return workspace.GetTensor("x_grad").Clone();
  };
  ExpectSame(x_grad(true), x_grad(false), "x_grad");
}

TEST(RecurrentGradient, G5AnyAliasOffsetIsDifferentiable) {
  const auto make = [] {
    RecurrentCase net = SumMulCase();
    net.Output("from_start", "h", 0).Output("later", "h", 2).Output("last_two", "h", -2);
    for (const char* output : {"from_start", "later", "last_two", "h_last"}) net.OutputGradient(output);
    net.WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, SumMulFeeds(4), {"from_start", "later", "last_two", "h_last"});
}

TEST(RecurrentGradient, G6ACellThatIgnoresItsStateGivesZeroNotGarbage) {
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("h_next = Mul(x_t, x_t)").Output("h_all", "h", 1);
    net.BackwardStep("half = Mul(h_next_grad, x_t)").BackwardStep("x_t_grad = Sum(half, half)");
    net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("x_t_grad", "x_grad", 0);
    net.OutputGradient("h_all").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, SumMulFeeds(4), {"h_all"});
  RecurrentCase net = make();
  for (const auto& [name, tensor] : SumMulFeeds(4)) net.Feed(name, tensor);
  net.Feed("h_all_grad", Random({4, 2, 3}, 9)).Run();
  EXPECT_EQ(Values(net.Get("h0_grad")), std::vector<double>(6, 0.0));
}

TEST(RecurrentGradient, G7CapturedTensorsGetTheirGradientWithoutBeingListed) {
  RecurrentCase net = FcCase();
  NetDef def = net.Build();
  for (Argument& argument : *def.mutable_op(0)->mutable_arg()) {
    if (argument.name() == "param") argument.clear_ints();
    if (argument.name() == "param_grads") argument.clear_strings();
  }
  std::vector<GradientBlobs> outputs(3);
  outputs[0].dense = "h_all_grad";
  const OperatorGradient gradient = MakeGradient(def.op(0), outputs);
  ASSERT_EQ(gradient.ops.size(), 1u);
  const auto& made = gradient.ops[0].output();
  EXPECT_EQ(std::vector<std::string>(made.begin(), made.end()),
            (std::vector<std::string>{"x_grad", "b_grad", "w_grad", "h0_grad"}));
  *def.add_op() = gradient.ops[0];
  Workspace workspace;
  for (const auto& [name, tensor] : FcFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  RunNetOnce(def, workspace);
  RecurrentCase listed = FcCase();
  listed.OutputGradient("h_all").WithGradient();
  for (const auto& [name, tensor] : FcFeeds(4)) listed.Feed(name, tensor);
  listed.Feed("h_all_grad", Random({4, 2, 3}, 9)).Run();
  for (const char* blob : {"x_grad", "w_grad", "b_grad", "h0_grad"}) {
    ExpectSame(workspace.GetTensor(blob), listed.Get(blob), blob);
  }
}

TEST(RecurrentGradient, G8OutputsWithGradsAreThoseWhoseGradientExists) {
  NetDef def = FcCase().Build();
  std::vector<GradientBlobs> outputs(3);
  outputs[1].dense = "h_last_grad";
  const OperatorGradient gradient = MakeGradient(def.op(0), outputs);
  EXPECT_EQ(gradient.ops.at(0).input(0), "h_last_grad");
  EXPECT_EQ(gradient.ops[0].input(1), "x");
}

TEST(RecurrentGradient, G9InitialStateGradientsAreTheUsersOwn) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  for (const auto& [name, tensor] : SumMulFeeds(4)) net.Feed(name, tensor);
  net.Feed("h_all_grad", Random({4, 2, 3}, 9)).Run();
  const Tensor held = net.Get("h0_grad");
  EXPECT_FALSE(held.SharesStorageWith(net.Get("h_grad")));
  const std::vector<double> before = Values(held);
  net.Feed("h_all_grad", Random({4, 2, 3}, 10)).Run();
  EXPECT_EQ(Values(held), before);
}

TEST(RecurrentGradient, G11GradientsAreWrittenAddedOrLeftOutAsRequested) {
  RecurrentCase plain = FcCase();
  plain.OutputGradient("h_all").WithGradient();
  RecurrentCase adding = FcCase();
  adding.OutputGradient("h_all").WithGradient();
  AddStrings(&adding.gradient(), "gradient_requests", {"add", "add", "none", "add"});
  for (RecurrentCase* net : {&plain, &adding}) {
    for (const auto& [name, tensor] : FcFeeds(4)) net->Feed(name, tensor);
    net->Feed("h_all_grad", Random({4, 2, 3}, 9));
  }
  const Tensor x = Random({4, 2, 3}, 20), w = Random({3, 3}, 21), h0 = Random({2, 3}, 22);
  adding.Feed("x_grad", x.Clone()).Feed("w_grad", w.Clone()).Feed("h0_grad", h0.Clone());
  plain.Run();
  adding.Run();
  for (const auto& [blob, start] : Feeds{{"x_grad", x}, {"w_grad", w}, {"h0_grad", h0}}) {
    const std::vector<double> sum = Values(adding.Get(blob)), gradient = Values(plain.Get(blob)),
                              before = Values(start);
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], before[i] + gradient[i], 1e-14) << blob;
  }
  EXPECT_FALSE(adding.workspace().GetBlob("b_grad").HasTensor());
}

TEST(RecurrentGradient, G11SumsThatGoOnLeaveWhatOthersHold) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  AddStrings(&net.gradient(), "gradient_requests", {"add", "write"});
  for (const auto& [name, tensor] : SumMulFeeds(4)) net.Feed(name, tensor);
  const Tensor held = Random({4, 2, 3}, 20);
  const std::vector<double> before = Values(held);
  net.Feed("h_all_grad", Random({4, 2, 3}, 9)).Feed("x_grad", held).Run();
  EXPECT_EQ(Values(held), before);
  const std::vector<double> once = Values(net.Get("x_grad").Clone());
  net.Run();  // in its own memory now
  const std::vector<double> twice = Values(net.Get("x_grad"));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NE(once[i], before[i]);
    EXPECT_NEAR(twice[i] - once[i], once[i] - before[i], 1e-14);
  }
}

TEST(RecurrentGradient, G11AddNeedsSomethingToAddTo) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  AddStrings(&net.gradient(), "gradient_requests", {"add", "write"});
  for (const auto& [name, tensor] : SumMulFeeds(4)) net.Feed(name, tensor);
  net.Feed("h_all_grad", Random({4, 2, 3}, 9));
  ExpectError([&] { net.Run(); },
              "…gradient_requests says add for \"x_grad\", which holds nothing and must hold double [4, 2, 3]");
}

TEST(RecurrentGradient, G12NeedsTheForwardRunOfItsOwnOperator) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  NetDef def = net.Build();
  AddStrings(def.mutable_op(1), "step_output_src", {"h_next"});
  AddStrings(def.mutable_op(1), "step_output_dst", {"y"});
  Workspace workspace;
  for (const auto& [name, tensor] : SumMulFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  ExpectError(
      [&] { RunNetOnce(def, workspace); },
      "…invalid net: RecurrentNetworkGradient has 1 states and 1 step outputs; its forward operator has 1 and 0");
}

TEST(RecurrentGradient, G12NeedsAForwardRun) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  NetDef def = net.Build();
  def.mutable_op()->DeleteSubrange(0, 1);
  Workspace workspace;
  for (const auto& [name, tensor] : SumMulFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  for (const char* blob : {"h_all", "h_last", "record"}) workspace.CreateBlob(blob);
  ExpectError(
      [&] { RunNetOnce(def, workspace); },
      "…invalid argument: \"record\" holds nothing; it must be the last output of the RecurrentNetwork whose gradient "
      "this is, which must have run before");
}

TEST(RecurrentGradient, G12NeedsAForwardRunThatKeptItsBlobs) {
  RecurrentCase net = FcCase();
  net.OutputGradient("h_all").WithGradient();
  NetDef def = net.Build();
  for (auto& argument : *def.mutable_op(0)->mutable_arg()) {
    if (argument.name() == "backward_step_net") argument.mutable_n()->clear_op();
  }
  Workspace workspace;
  for (const auto& [name, tensor] : FcFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  ExpectError(
      [&] { RunNetOnce(def, workspace); },
      "…the backward step net reads \"f\", which the forward run did not keep: RecurrentNetwork needs the argument "
      "backward_step_net, the same as its gradient has, to train");
}

TEST(RecurrentGradient, G12ANetThatOnlyRunsForwardHasNoGradient) {
  NetDef def = FcCase().Build();
  OperatorDef forward = def.op(0);
  forward.clear_arg();
  for (const Argument& argument : def.op(0).arg()) {
    if (!argument.name().starts_with("backward_")) *forward.add_arg() = argument;
  }
  std::vector<GradientBlobs> outputs(3);
  outputs[0].dense = "h_all_grad";
  ExpectError([&] { MakeGradient(forward, outputs); },
              "…RecurrentNetwork has no backward_step_net, without which there is no gradient: it only runs forward");
}

TEST(RecurrentGradient, G13RunsTwiceAfterOneForwardRun) {
  RecurrentCase net = FcCase();
  net.OutputGradient("h_all").WithGradient();
  NetDef def = net.Build();
  OperatorDef again = def.op(1);
  for (std::string& output : *again.mutable_output()) output = "second_" + output;
  *def.add_op() = again;
  Workspace workspace;
  for (const auto& [name, tensor] : FcFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  RunNetOnce(def, workspace);
  for (const std::string blob : {"x_grad", "w_grad", "b_grad", "h0_grad"}) {
    ExpectSame(workspace.GetTensor(blob), workspace.GetTensor("second_" + blob), blob);
  }
}

TEST(RecurrentGradient, AnEmptyBackwardStepNetWorks) {
  // h[t] = x[t] + h[t-1]: nothing to compute, gradients are links alone. Caffe2 drops the empty net from the file.
  for (const bool has_backward_net : {true, false}) {
    const auto make = [&] {
      RecurrentCase net;
      net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
      net.Output("h_all", "h", 1).Output("h_last", "h", -1);
      if (has_backward_net) net.BackwardStep("");
      net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_next_grad", "h_grad", 0);
      net.BackwardLink("h_next_grad", "x_grad", 0).OutputGradient("h_all").OutputGradient("h_last").WithGradient();
      return net;
    };
    ExpectGradientsMatch(make, SumMulFeeds(4), {"h_all", "h_last"});
  }
}

TEST(RecurrentGradient, GradientsOfOutputsThatAreNotListedCountToo) {
  // Two layers, the second starts from the last state of the first; only h_all is listed, as Caffe2's library does.
  RecurrentCase listed = SumMulCase(), unlisted = SumMulCase();
  listed.OutputGradient("h_all").OutputGradient("h_last").WithGradient();
  unlisted.OutputGradient("h_all").WithGradient();
  NetDef def = unlisted.Build();
  OperatorDef writes_gradient = ParseOp("h_last_grad = Copy(source)");
  def.add_op()->Swap(&writes_gradient);
  def.mutable_op()->SwapElements(1, 2);
  for (RecurrentCase* net : {&listed, &unlisted}) {
    for (const auto& [name, tensor] : SumMulFeeds(4)) net->Feed(name, tensor);
    net->Feed("h_all_grad", Random({4, 2, 3}, 9)).Feed("h_last_grad", Random({1, 2, 3}, 10));
  }
  listed.Run();
  unlisted.Feed("source", Random({1, 2, 3}, 10));
  RunNetOnce(def, unlisted.workspace());
  for (const char* blob : {"x_grad", "h0_grad"}) ExpectSame(unlisted.Get(blob), listed.Get(blob), blob);
}

TEST(RecurrentGradient, ANestedNetIsDifferentiable) {
  // Each step runs a net of its own over the rows of its slice: inner n = s (s + p).
  const auto make = [] {
    RecurrentCase inner;
    inner.Sequence("slice", "s_t").State("inner_h", "h_prev", "p", "n");
    inner.Step("q = Sum(s_t, p)").Step("n = Mul(s_t, q)").Output("h_next", "inner_h", -1);
    inner.BackwardStep("ds = Mul(n_grad, q)").BackwardStep("q_grad = Mul(n_grad, s_t)");
    inner.BackwardStep("s_t_grad = Sum(ds, q_grad)").BackwardLink("n_grad", "inner_h_grad", 1);
    inner.BackwardLink("q_grad", "inner_h_grad", 0).BackwardLink("s_t_grad", "slice_grad", 0);
    inner.OutputGradient("h_next").WithGradient();
    const NetDef nested = inner.Build();
    OperatorDef squeeze = ParseOp("slice = Squeeze(x_t)");
    AddInts(&squeeze, "dims", {0});
    OperatorDef expand = ParseOp("x_t_grad = ExpandDims(slice_grad)");
    AddInts(&expand, "dims", {0});
    RecurrentCase outer;
    outer.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step(squeeze).Step(nested.op(0));
    outer.Output("h_all", "h", 1).BackwardStep(nested.op(1)).BackwardStep(expand);
    outer.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
    outer.BackwardLink("x_t_grad", "x_grad", 0).OutputGradient("h_all").WithGradient();
    return outer;
  };
  ExpectGradientsMatch(make, {{"x", Random({3, 2, 2, 2}, 1)}, {"h0", Random({1, 2, 2}, 2)}}, {"h_all"});
}

TEST(RecurrentGradient, RefusesAGradientOfAnotherLength) {
  RecurrentCase net = SumMulCase();
  net.OutputGradient("h_all").WithGradient();
  for (const auto& [name, tensor] : SumMulFeeds(4)) net.Feed(name, tensor);
  net.Feed("h_all_grad", Random({5, 2, 3}, 9));
  ExpectError(
      [&] { net.Run(); },
      "…shape mismatch: \"h_all_grad\", the gradient of \"h_all\", is double [5, 2, 3]; it must be double [4, 2, 3]");
}

TEST(RecurrentGradient, RefusesAParamThatNothingGivesAGradient) {
  RecurrentCase net = FcCase();
  net.OutputGradient("h_all").WithGradient();
  NetDef def = net.Build();
  for (OperatorDef& op : *def.mutable_op()) {
    for (Argument& argument : *op.mutable_arg()) {
      if (argument.name() == "param_grads") argument.set_strings(0, "w_gard");
    }
  }
  Workspace workspace;
  for (const auto& [name, tensor] : FcFeeds(4)) workspace.SetTensor(name, tensor);
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 9));
  ExpectError([&] { RunNetOnce(def, workspace); },
              "…invalid net: nothing in the backward step net writes \"w_gard\", the gradient of \"w\"; did you mean "
              "\"w_grad\"?");
}

}  // namespace
}  // namespace stepnet
