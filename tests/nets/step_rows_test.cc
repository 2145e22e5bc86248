// Gradients of rows that a step writes and sees by other names, against central differences in double.
#include "stepnet/nets/step_rows.h"

#include "../executor/recurrent_case.h"
#include "../operators/op_test.h"
#include "stepnet/nets/backward_step.h"

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
