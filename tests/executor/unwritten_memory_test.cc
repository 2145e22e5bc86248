// Results never come from memory that nobody wrote: every case runs on memory filled with two patterns.
#include "recurrent_case.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Numbers = std::vector<double>;

// Runs a case twice in each pattern, the second time in used memory, and expects these values of the blob.
void ExpectRun(const std::function<RecurrentCase()>& make, const std::string& blob, const Numbers& expected) {
  for (const std::uint8_t fill : kFills) {
    const FilledMemory filled(fill);
    RecurrentCase net = make();
    for (int run = 0; run < 2; ++run) EXPECT_EQ(Values(net.Run().Get(blob)), expected) << "fill " << int{fill};
  }
}

TEST(UnwrittenMemory, AStateThatNoOperatorWritesIsRefusedWithTheNearestName) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("hnext = Sum(x_t, h_prev)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2})).Feed("h0", One(0));
  ExpectError(
      [&] { net.Run(); },
      "invalid net: no operator of the step net writes \"h_next\", the new row of the state \"h\"; did you mean "
      "\"hnext\"?\n  in net \"step\"");
}

TEST(UnwrittenMemory, AStateThatIsOnlyReadIsRefused) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "c_prev", "");
  net.Step("h_next = Sum(x_t, h_prev, c_prev)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Feed("c0", One(0));
  ExpectError([&] { net.Run(); }, "invalid net: no operator of the step net writes the state \"c\"\n  in net \"step\"");
}

TEST(UnwrittenMemory, AStateWithoutLinksIsRefused) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "", "");
  net.Step("h_next = Sum(x_t, h_prev)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Feed("c0", One(0));
  ExpectError([&] { net.Run(); }, "…no operator of the step net writes the state \"c\": nothing is linked to it");
}

TEST(UnwrittenMemory, ALinkThatNoOperatorUsesIsRefused) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Sequence("y", "y_t");
  net.Step("h_next = Sum(x_t, h_prev)").Output("all", "h", 1);
  net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Feed("y", Column({1, 2}));
  ExpectError([&] { net.Run(); }, "…\"y_t\" is linked to \"y\", and no operator of the step net reads or writes it");
}

TEST(UnwrittenMemory, RowsAfterTheLastWrittenOneAreZeros) {
  ExpectRun(
      [] {
        RecurrentCase net;
        net.Sequence("x", "x_t").State("h", "h0", "h_prev", "", /*num_initial=*/2).Link("h_next", "h", 1);
        net.Step("h_next = Sum(x_t, h_prev)").Output("all", "h", 0);
        net.Feed("x", Column({1, 2, 3})).Feed("h0", Column({10, 20}));
        return net;
      },
      "all", {10, 11, 13, 16, 0});
}

TEST(UnwrittenMemory, RowsThatAStepUpdatesInPlaceBeginAsZeros) {
  ExpectRun(
      [] {
        RecurrentCase net;
        net.Sequence("x", "x_t").State("h", "h0", "h_t", "").Step("h_t = Sum(h_t, x_t)").Output("all", "h", 0);
        net.Feed("x", Column({1, 2, 3})).Feed("h0", One(10));
        return net;
      },
      "all", {11, 2, 3, 0});
}

TEST(UnwrittenMemory, RowsThatOnlyAPassedOnBlobGivesAreWritten) {
  ExpectRun(
      [] {
        RecurrentCase net;
        net.Sequence("x", "x_t").State("h", "h0", "h_prev", "x_t").State("g", "g0", "", "g_next");
        net.Step("g_next = Sum(x_t, h_prev)").Output("all", "g", 1);
        net.Feed("x", Column({1, 2, 3})).Feed("h0", One(10)).Feed("g0", One(0));
        return net;
      },
      "all", {11, 3, 5});
}

TEST(UnwrittenMemory, TheGradientOfRowsBeyondTheStepsIsZero) {
  ExpectRun(
      [] {
        RecurrentCase net;
        net.Sequence("clock", "clock_t").Step("unused = Copy(clock_t)").Sequence("x", "x_t", /*offset=*/1);
        net.State("h", "h0", "h_prev", "h_next").Step("h_next = Mul(x_t, h_prev)").Param("x", "x_sum_grad");
        net.Output("all", "h", 1).OutputGradient("all");
        net.BackwardStep("x_t_grad = Mul(h_next_grad, h_prev)").BackwardStep("h_prev_grad = Mul(h_next_grad, x_t)");
        net.BackwardLink("h_prev_grad", "h_grad", 0).BackwardLink("h_next_grad", "h_grad", 1);
        net.BackwardLink("x_t_grad", "x_grad", 0).WithGradient();
        net.Feed("x", Column({7, 2, 3})).Feed("clock", Column({0, 0})).Feed("h0", One(10));
        net.Feed("all_grad", Column({1, 1}));
        return net;
      },
      "x_grad", {10 + 30, 20, 0});
}

}  // namespace
}  // namespace stepnet
