// Gradients of rows that a step writes and sees by other names, against central differences in double.
#include "stepnet/nets/step_rows.h"

#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

void AddStepOutputs(const std::vector<std::string>& blobs, RecurrentCase* net) {
  std::vector<std::string> outputs;
  for (const std::string& blob : blobs) outputs.push_back(blob + "_all");
  AddStrings(&net->forward(), "step_output_src", blobs);
  AddStrings(&net->forward(), "step_output_dst", outputs);
  for (const std::string& output : outputs) net->forward().add_output(output);
}

// A state of which the step sees the new row by a second name, too.
RecurrentCase CaseWithOtherName() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Link("again", "h", 1);
  net.Step("h_next = Mul(x_t, h_prev)").Output("h_all", "h", 1);
  return net;
}

const Feeds& FeedsOfOtherName() {
  static const Feeds feeds = {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}};
  return feeds;
}

TEST(StepRows, AnotherNameOfARowMayBeAStepOutput) {
  RecurrentCase alone = CaseWithOtherName();
  AddStepOutputs({"again"}, &alone);
  ExpectMadeGradientsMatch(alone.Build(), {"again_all"}, FeedsOfOtherName());
  ExpectMadeGradientsMatch(alone.Build(), {"again_all", "h_all"}, FeedsOfOtherName());
  RecurrentCase read = CaseWithOtherName();
  read.Step("y = Tanh(again)");
  AddStepOutputs({"again", "y", "h_next"}, &read);
  ExpectMadeGradientsMatch(read.Build(), {"again_all"}, FeedsOfOtherName());
  ExpectMadeGradientsMatch(read.Build(), {"again_all", "y_all", "h_next_all", "h_all"}, FeedsOfOtherName());
}

TEST(StepRows, AWindowUpToTheNewRowMayBeAStepOutput) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next", 2).Link("both", "h", 1, 2);
  net.Step("h_next = Mul(x_t, h_prev)").Step("y = Tanh(both)").Output("h_all", "h", 2);
  AddStepOutputs({"both", "y"}, &net);
  ExpectMadeGradientsMatch(net.Build(), {"both_all", "y_all", "h_all"},
                           {{"x", Random({4, 2, 3}, 1)}, {"h0", Random({2, 2, 3}, 2)}});
}

// What reads it names it in its arguments, too.
TEST(StepRows, AnotherNameOfARowMayBeTheSequenceOfARecurrentNetwork) {
  RecurrentCase inner;
  inner.Sequence("again", "i_t").State("k", "g_prev", "k_prev", "k_next").Step("k_next = Mul(i_t, k_prev)");
  inner.Output("k_last", "k", -1);
  RecurrentCase net = CaseWithOtherName();
  net.State("g", "g0", "g_prev", "g_next").Step(inner.Build().op(0)).Step("g_next = Tanh(k_last)");
  Feeds feeds = FeedsOfOtherName();
  feeds.emplace_back("g0", Random({2, 3}, 3));
  ExpectMadeGradientsMatch(net.Output("g_all", "g", 1).Build(), {"g_all", "h_all"}, feeds);
}

// What a step gives to one state it hands on to another, by a second name; others read it there.
TEST(StepRows, AnotherNameOfARowMayBeHandedOn) {
  RecurrentCase net = CaseWithOtherName();
  net.State("g", "g0", "g_prev", "again").Link("g_again", "g", 1).State("k", "k0", "k_prev", "k_next");
  net.Step("y = Tanh(again)").Step("m = Mul(g_again, g_prev)").Step("k_next = Sum(m, y, k_prev)");
  net.Output("g_all", "g", 1).Output("k_all", "k", 1);
  Feeds feeds = FeedsOfOtherName();
  feeds.insert(feeds.end(), {{"g0", Random({2, 3}, 3)}, {"k0", Random({2, 3}, 4)}});
  ExpectMadeGradientsMatch(net.Build(), {"g_all"}, feeds);
  ExpectMadeGradientsMatch(net.Build(), {"g_all", "k_all", "h_all"}, feeds);
}

// A state whose first steps overwrite initial rows, from `offset` on; `op` says what is written.
NetDef NetThatOverwritesInitialRows(std::int64_t offset, const std::string& op) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "").Link("h_next", "h", offset).Step("t = Tanh(x_t)").Step(op);
  net.Link("h_prev", "h", 0).Step("y = Mul(h_prev, x_t)");
  AddStepOutputs({"y"}, &net);
  return net.Output("h_whole", "h", 0).Build();
}

TEST(StepRows, GradientsOfOverwrittenInitialRowsBelongToWhatIsWritten) {
  for (const std::int64_t offset : {1, 3}) {
    for (const std::int64_t num_steps : {0, 1, 2, 6}) {
      for (const Shape& h0 : {Shape({4, 2, 3}), Shape({4, 1, 3}), Shape({1, 2, 3}), Shape({2, 3}), Shape({3})}) {
        const std::int64_t num_initial = h0.rank() == 3 ? h0[0] : 1;
        if (offset > num_initial || (num_steps == 0 && h0.rank() < 3)) continue;
        SCOPED_TRACE(StrCat("offset ", offset, ", ", num_steps, " steps, h0 ", h0));
        for (const char* op : {"h_next = ConstantFill(t)", "h_next = Copy(t)", "h_next = Mul(t, h_prev)"}) {
          SCOPED_TRACE(op);
          ExpectMadeGradientsMatch(NetThatOverwritesInitialRows(offset, op), {"h_whole", "y_all"},
                                   {{"x", Random({num_steps, 2, 3}, 1)}, {"h0", Random(h0, 2)}});
        }
      }
    }
  }
}

// The same by the initial state alone, which leaves out what the backward step computes of the row.
TEST(StepRows, GradientsOfOverwrittenInitialRowsAreTheSameAlone) {
  NetDef net = NetThatOverwritesInitialRows(1, "h_next = Copy(t)");
  AddBackwardStepNets(&net, std::vector<std::string>{"h0"});
  const NetWithGradients made = AddGradients(net, {"h_whole"}, {"h0"});
  Workspace workspace;
  workspace.SetTensor("x", Column({5, 6}));
  workspace.SetTensor("h0", Column({1, 2, 3, 4}));
  RunNetOnce(made.net, workspace);
  EXPECT_EQ(Values(workspace.GetTensor("h0_grad")), (std::vector<double>{1, 0, 0, 1}));
}

TEST(StepRows, RefusesInitialRowsThatAreSeenAndThenOverwritten) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "").Link("old", "h", 0).Link("new", "h", 0);
  net.Step("s = Tanh(old)").Step("new = Mul(x_t, s)").Output("h_all", "h", 0);
  net.BackwardStep("s_grad = Copy(s)").BackwardLink("s_grad", "h_grad", 0).OutputGradient("h_all").WithGradient();
  for (const char* blob : {"x", "h0"}) net.Feed(blob, Column({1, 2}));
  net.Feed("h_all_grad", Column({1, 2, 3, 4}));
  ExpectError([&] { net.Run(); },
              "…no gradient can be computed: the step net overwrites initial rows of \"h\" as \"new\" (link offset 0), "
              "which it also sees as they were; write behind the 2 initial rows, with link_offset 2");
}

TEST(StepRows, RefusesARowThatIsReadBeforeItIsWritten) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "").Link("old", "h", 0).Link("new", "h", 0);
  NetDef def = net.Step("s = Tanh(old)").Step("new = Mul(x_t, s)").Output("h_all", "h", 0).Build();
  ExpectError([&] { AddBackwardStepNets(&def); },
              "…the step net reads rows of \"h\" as \"old\" and then writes them as \"new\"; no gradient can be made: "
              "write rows behind those that are read (link_offset)");
}

}  // namespace
}  // namespace stepnet
