// What is wrong with a gradient operator is found before anything runs, as far as the net tells it. Names of tests cite
// the rules of docs/caffe2_compatibility.md.
#include "stepnet/nets/completion.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// h[t] = x[t] (x[t] + h[t-1]): operators 0 and 1 are RecurrentNetwork and its gradient.
RecurrentCase Case() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Sum(x_t, h_prev)").Step("h_next = Mul(x_t, s)").Output("h_all", "h", 1).Output("h_last", "h", -1);
  net.BackwardStep("dx = Mul(h_next_grad, s)").BackwardStep("s_grad = Mul(h_next_grad, x_t)");
  net.BackwardStep("x_t_grad = Sum(dx, s_grad)").BackwardLink("h_next_grad", "h_grad", 1);
  net.BackwardLink("s_grad", "h_grad", 0).BackwardLink("x_t_grad", "x_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  return net;
}

Argument& ArgumentOf(OperatorDef& op, const std::string& name) {
  for (Argument& argument : *op.mutable_arg()) {
    if (argument.name() == name) return argument;
  }
  ADD_FAILURE() << "no argument " << name;
  return *op.add_arg();
}

std::vector<NetProblem> Problems(const NetDef& net) { return CheckNet(*Completed(net)); }

// One problem, of the gradient operator.
void ExpectProblem(const NetDef& net, const std::string& message) {
  const std::vector<NetProblem> problems = Problems(net);
  ASSERT_EQ(problems.size(), 1u) << "expected: " << message;
  EXPECT_EQ(problems[0].message, message);
  EXPECT_EQ(problems[0].net, "case");
  EXPECT_EQ(problems[0].op_index, 1);
  EXPECT_NE(problems[0].op_text.find("RecurrentNetworkGradient("), std::string::npos);
  Workspace workspace;
  for (const char* blob : {"x", "h0", "h_all_grad"}) workspace.CreateBlob(blob);
  ExpectError([&] { Net::Create(net, workspace); }, "…" + message);
}

// One problem, of an operator of the backward step net.
void ExpectProblemOfStep(const NetDef& net, int op_index, const std::string& message) {
  const std::vector<NetProblem> problems = Problems(net);
  ASSERT_EQ(problems.size(), 1u) << "expected: " << message;
  EXPECT_EQ(problems[0].message, message);
  EXPECT_EQ(problems[0].net, "backward_step");
  EXPECT_EQ(problems[0].op_index, op_index);
}

TEST(GradientCheck, FindsNothingInWhatIsRight) { EXPECT_TRUE(Problems(Case().Build()).empty()); }

TEST(GradientCheck, FindsLinksThatNameNoGradient) {
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "backward_link_external").set_strings(2, "xx_grad");
  ExpectProblem(net,
                "the backward link of \"x_t_grad\" names \"xx_grad\", which is the gradient of no state, of no step "
                "output, of no param and not of the first input; did you mean \"x_grad\"?");
}

TEST(GradientCheck, FindsLinksThatNoOperatorUses) {
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "backward_link_internal").set_strings(2, "x_t_gradient");
  ExpectProblem(
      net,
      "\"x_t_gradient\" is linked to \"x_grad\", and no operator of the backward step net reads or writes it; did "
      "you mean \"x_t_grad\"?");
}

TEST(GradientCheck, FindsLinksBeyondTheFirstInput) {
  RecurrentCase forward;
  forward.Sequence("x", "x_t", 0, 2).State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  const std::vector<NetProblem> problems = CheckNet(forward.Build());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(
      problems[0].message,
      "\"x_t\" is linked to \"x\" with offset 0 and window 2; the first input has a row for each step and no more: "
      "offset 0 and window 1");
}

TEST(GradientCheck, FindsOutputsThatAreNotThere) {
  for (const int output : {2, 3, 7}) {
    NetDef net = Case().Build();
    ArgumentOf(*net.mutable_op(1), "outputs_with_grads").set_ints(0, output);
    ExpectProblem(net, StrCat("outputs_with_grads names output ", output,
                              "; the forward operator has 2 before the record of the run"));
  }
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "outputs_with_grads").set_ints(0, -1);
  ExpectProblem(net, "outputs_with_grads names output -1");
}

TEST(GradientCheck, FindsOutputsThatShowSomethingElse) {
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "alias_dst").set_strings(0, "h_al");
  ExpectProblem(net,
                "output 0 \"h_all\" of the forward operator is no alias of a state; its gradient cannot be computed");
  net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "alias_offset").set_ints(0, 0);
  ExpectProblem(net,
                "output 0 \"h_all\" shows other rows by the aliases of RecurrentNetworkGradient than by those of its "
                "forward operator");
}

// Inputs of the gradient operator that are none of the forward operator's: the step does not see them.
TEST(GradientCheck, FindsBlobsThatNobodyGives) {
  for (const char* blob : {"h_all_grad", "h_last"}) {
    NetDef net = Case().Build();
    *ArgumentOf(*net.mutable_op(1), "backward_step_net").mutable_n()->add_op() =
        ParseOp(StrCat("more = Tanh(", blob, ")"));
    ExpectProblemOfStep(net, 3, StrCat("\"", blob, "\" is read before anything writes it"));
  }
}

TEST(GradientCheck, FindsReadsOfWhatIsOnlyAddedTo) {
  RecurrentCase net = Case();
  net.BackwardStep("more = Tanh(h_prev_grad)").BackwardLink("h_prev_grad", "h_grad", 0);
  ExpectProblemOfStep(net.Build(), 3,
                      "\"h_prev_grad\" is read before anything writes it: its links only take what the step adds to "
                      "gradients");
}

TEST(GradientCheck, FindsBlobsThatTheForwardRunDoesNotKeep) {
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(0), "backward_step_net").mutable_n()->clear_op();
  ExpectProblemOfStep(net, 0,
                      "the backward step net reads \"s\", which the forward run did not keep: RecurrentNetwork needs "
                      "the argument backward_step_net, the same as its gradient has, to train");
}

TEST(GradientCheck, FindsRecordsOfSomethingElse) {
  NetDef net = Case().Build();
  *net.mutable_op(1)->mutable_input()->rbegin() = "h_last";
  const std::vector<NetProblem> problems = Problems(net);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].op_index, 1);
  EXPECT_EQ(
      problems[0].message,
      "the last input, \"h_last\", is what `h_all, h_last, record = RecurrentNetwork(x, h0)` gives; it must be the "
      "last output of the RecurrentNetwork whose gradient this is");
}

TEST(GradientCheck, FindsGradientsThatNothingComputes) {
  RecurrentCase net = Case();
  net.Captured("w").Step("more = Tanh(w)").Param("w", "w_gard").BackwardStep("w_grad = Tanh(w)");
  net.WithGradient({"x_grad", "w_grad", "h0_grad"});
  ExpectProblem(net.Build(),
                "nothing in the backward step net writes \"w_gard\", the gradient of \"w\"; did you mean \"w_grad\"?");
}

// Completed before it is checked, as before it runs: the gradient of h_last counts, and no alias shows what it is.
TEST(GradientCheck, ChecksWhatRuns) {
  NetDef net = Case().Build();
  ArgumentOf(*net.mutable_op(1), "alias_dst").set_strings(1, "h_lst");
  EXPECT_TRUE(Problems(net).empty());
  OperatorDef gradient = ParseOp("h_last_grad = Copy(h_last)");
  net.add_op()->Swap(&gradient);
  net.mutable_op()->SwapElements(1, 2);
  const std::vector<NetProblem> problems = Problems(net);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].op_index, 2);
  EXPECT_EQ(problems[0].message,
            "output 1 \"h_last\" of the forward operator is no alias of a state; its gradient cannot be computed");
}

// A recurrent operator in the step net and its gradient in the backward step net.
TEST(GradientCheck, FindsDisagreementsOfNestedOperators) {
  RecurrentCase outer;
  const NetDef nested = Case().Build();
  outer.Sequence("xs", "x").State("h0s", "h00", "h0", "h_last").Step(nested.op(0)).BackwardStep(nested.op(1));
  outer.Output("all", "h0s", 1).BackwardLink("h_all_grad", "h0s_grad", 1).BackwardLink("h0_grad", "h0s_grad", 0);
  outer.BackwardLink("x_grad", "xs_grad", 0).OutputGradient("all").WithGradient();
  NetDef net = outer.Build();
  EXPECT_TRUE(Problems(net).empty());
  for (OperatorDef& op : *net.mutable_op()) {
    OperatorDef& inner = *ArgumentOf(op, "backward_step_net").mutable_n()->mutable_op(0);
    ArgumentOf(inner, "link_offset").set_ints(1, 1);
  }
  const std::vector<NetProblem> problems = Problems(net);
  ASSERT_EQ(problems.size(), 2u);  // each of the two operators has the backward step net
  for (const NetProblem& problem : problems) {
    EXPECT_EQ(problem.net, "backward_step");
    EXPECT_EQ(problem.op_index, 0);
    EXPECT_EQ(
        problem.message,
        "link 1 of RecurrentNetworkGradient is another one than that of its forward operator: \"h_prev\" is linked "
        "to \"h\" with offset 1 and window 1, and there \"h_prev\" is linked to \"h\" with offset 0 and window 1");
  }
}

// The same where the forward operator ran in a net of its own: found when the gradient runs.
TEST(GradientCheck, FindsDisagreementsWithOtherNetsInTheRun) {
  NetDef forward = Case().Build(), backward = forward;
  forward.mutable_op()->RemoveLast();
  backward.mutable_op()->DeleteSubrange(0, 1);
  ArgumentOf(*backward.mutable_op(0), "outputs_with_grads").set_ints(0, 2);
  Workspace workspace;
  workspace.SetTensor("x", Random({4, 2, 3}, 1));
  workspace.SetTensor("h0", Random({2, 3}, 2));
  workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 3));
  RunNetOnce(forward, workspace);
  ExpectError([&] { RunNetOnce(backward, workspace); },
              "…invalid net: outputs_with_grads names output 2; the forward operator has 2 before the record of the "
              "run");
}

}  // namespace
}  // namespace stepnet
