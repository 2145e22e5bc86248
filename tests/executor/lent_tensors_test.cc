// A step never changes the caller's tensors: what it writes onto is a copy, one a run, whose changes its steps see.
#include "recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Numbers = std::vector<double>;

// Two runs give the same, and leave what they were fed as it was.
void ExpectTwoRuns(RecurrentCase net, const std::string& fed, const std::string& blob, const Numbers& expected) {
  const Tensor given = net.Get(fed);
  const Numbers before = Values(given);
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(Values(net.Run().Get(blob)), expected);
    EXPECT_EQ(Values(net.Get(fed)), before) << "run " << run;
    EXPECT_EQ(Values(given), before) << "run " << run;
  }
}

TEST(LentTensors, ASequenceThatAStepUpdatesInPlaceIsCopied) {
  RecurrentCase net;
  net.Sequence("x", "x_t")
      .State("h", "h0", "h_prev", "h_next")
      .Step("x_t = Sum(x_t, h_prev)")
      .Step("h_next = Copy(x_t)");
  net.Output("all", "h", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(1));
  ExpectTwoRuns(std::move(net), "x", "all", {2, 4, 7});
}

TEST(LentTensors, StepsSeeEachOthersChangesOfACapturedTensor) {
  RecurrentCase net;
  net.Sequence("x", "x_t")
      .State("h", "h0", "", "h_next")
      .Captured("w")
      .Step("w = Sum(w, x_t)")
      .Step("h_next = Copy(w)");
  net.Output("all", "h", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(0)).Feed("w", Column({10}));
  ExpectTwoRuns(std::move(net), "w", "all", {11, 13, 16});
}

TEST(LentTensors, AnInputThatALinkWritesOntoIsCopied) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Sequence("y", "y_t").Link("y_before", "y", 0).State("h", "h0", "h_prev", "h_next");
  net.Step("old = Copy(y_before)").Step("y_t = Sum(x_t, old)").Step("h_next = Sum(h_prev, y_t)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2, 3})).Feed("y", Column({10, 20, 30})).Feed("h0", One(0));
  ExpectTwoRuns(std::move(net), "y", "all", {11, 33, 66});
}

// h[t] = x[t] h[t-1]; the backward step overwrites what it reads.
RecurrentCase InPlaceBackward(const std::vector<std::string>& ops) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Mul(x_t, h_prev)");
  net.Output("all", "h", 1).OutputGradient("all");
  for (const std::string& op : ops) net.BackwardStep(op);
  net.BackwardLink("h_prev_grad", "h_grad", 0).BackwardLink("h_next_grad", "h_grad", 1);
  net.BackwardLink("x_t_grad", "x_grad", 0).WithGradient();
  net.Feed("x", Column({2, 3})).Feed("h0", One(5)).Feed("all_grad", Column({1, 1}));
  return net;
}

TEST(LentTensors, ABackwardStepChangesNeitherTheInputsNorTheStates) {
  // Gradient of h[1] = h0 x[0], h[2] = h0 x[0] x[1]: by x[0] 5 + 15, by x[1] 10.
  const std::vector<std::string> ops = {"x_t_grad = Mul(h_next_grad, h_prev)", "x_t = Mul(x_t, h_next_grad)",
                                        "h_prev = Mul(h_prev, h_prev)", "h_prev_grad = Copy(x_t)"};
  ExpectTwoRuns(InPlaceBackward(ops), "x", "x_grad", {20, 10});
  RecurrentCase net = InPlaceBackward(ops);
  EXPECT_EQ(Values(net.Run().Get("all")), (Numbers{10, 30}));
}

TEST(LentTensors, TheGradientReadsWhatTheForwardStepsMadeOfTheirCopy) {
  // x'[t] = 2 x[t], h[t] = x'[t] h[t-1]: the backward step reads x'.
  RecurrentCase net;
  net.Sequence("x", "x_t")
      .State("h", "h0", "h_prev", "h_next")
      .Step("x_t = Sum(x_t, x_t)")
      .Step("h_next = Mul(x_t, h_prev)");
  net.Output("all", "h", 1).OutputGradient("all");
  net.BackwardStep("x_t_grad = Mul(h_next_grad, h_prev)").BackwardStep("h_prev_grad = Mul(h_next_grad, x_t)");
  net.BackwardLink("h_prev_grad", "h_grad", 0).BackwardLink("h_next_grad", "h_grad", 1);
  net.BackwardLink("x_t_grad", "x_grad", 0).WithGradient();
  net.Feed("x", Column({2, 3})).Feed("h0", One(5)).Feed("all_grad", Column({1, 1}));
  ExpectTwoRuns(std::move(net), "x", "x_grad", {5 + 6 * 5, 20});
}

}  // namespace
}  // namespace stepnet
