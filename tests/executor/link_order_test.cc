// Names of rows: the order of reads and writes decides what a step sees through a link.
#include "recurrent_case.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Numbers = std::vector<double>;

// g[t] = 2 h[t] where h is a running sum that is read by another name.
RecurrentCase SecondName(const std::vector<std::string>& ops) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Link("again", "h", 1).State("g", "g0", "", "g_next");
  for (const std::string& op : ops) net.Step(op);
  net.Output("all", "g", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(0)).Feed("g0", One(0));
  return net;
}

TEST(LinkOrder, ASecondNameReadsTheRowThatTheStepHasWritten) {
  for (const int executor : {0, 1}) {
    for (const std::uint8_t fill : kFills) {
      const FilledMemory filled(fill);
      RecurrentCase net = SecondName({"h_next = Sum(x_t, h_prev)", "g_next = Sum(again, again)"});
      AddInt(&net.forward(), "enable_rnn_executor", executor);
      EXPECT_EQ(Values(net.Run().Get("all")), (Numbers{2, 6, 12}));
    }
  }
}

TEST(LinkOrder, ASecondNameIsRefusedBeforeTheRowIsWritten) {
  RecurrentCase net = SecondName({"g_next = Sum(again, again)", "h_next = Sum(x_t, h_prev)"});
  ExpectError([&] { net.Run(); },
              "invalid net: \"again\" is read before anything writes it: it shows the new row of \"h\"\n"
              "  at op 0 `g_next = Sum(again, again)`\n  in net \"step\"");
}

TEST(LinkOrder, ASecondNameIsRefusedInTheOperatorThatWritesTheRow) {
  RecurrentCase net = SecondName({"h_next = Sum(x_t, h_prev, again)", "g_next = Copy(again)"});
  ExpectError([&] { net.Run(); }, "…\"again\" is read before anything writes it: it shows the new row of \"h\"");
}

TEST(LinkOrder, AWindowThatEndsWithTheNewRowIsReadAfterItIsWritten) {
  const auto make = [](const std::vector<std::string>& ops) {
    RecurrentCase net;
    net.Sequence("x", "x_t")
        .State("h", "h0", "h_prev", "h_next")
        .Link("both", "h", 0, 2)
        .State("g", "g0", "", "g_next");
    for (const std::string& op : ops) net.Step(op);
    net.Output("all", "g", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(0)).Feed("g0", One(0));
    return net;
  };
  const std::string write = "h_next = Sum(x_t, h_prev)", read = "pair = test.SumRows(both)",
                    give = "g_next = Copy(pair)";
  EXPECT_EQ(Values(make({write, read, give}).Run().Get("all")), (Numbers{1, 4, 9}));
  ExpectError([&] { make({read, write, give}).Run(); }, "…\"both\" is read before anything writes it");
}

TEST(LinkOrder, ABlobThatIsWrittenFirstGoesToAllItsRows) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "v", "v").Step("v = Copy(x_t)").Output("all", "h", 0);
  net.Feed("x", Column({1, 2, 3})).Feed("h0", One(7));
  EXPECT_EQ(Values(net.Run().Get("all")), (Numbers{1, 2, 3, 3}));
}

TEST(LinkOrder, ABlobThatIsReadFirstComesFromTheRowBefore) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "v", "v").Step("v = Sum(v, x_t)").Output("all", "h", 0);
  net.Feed("x", Column({1, 2, 3})).Feed("h0", One(7));
  EXPECT_EQ(Values(net.Run().Get("all")), (Numbers{7, 8, 10, 13}));
}

// FC writes the bias before it reads x.
TEST(LinkOrder, AnOperatorThatCannotWorkInPlaceReadsWhatItOverwritesByAnotherName) {
  for (const int window : {1, 2}) {
    for (const int level : {0, 1, 2}) {
      RecurrentCase net;
      net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
      // The row itself, or it and the one before it.
      net.Link("read", "h", 2 - window, window).Link("again", "h", 2 - window, window);
      OperatorDef fc = ParseOp("again = FC(read, w, b)");
      AddInt(&fc, "axis", 2);
      net.Step("h_next = Add(x_t, h_prev)").Step(fc).Output("all", "h", 1);
      net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Feed("w", One(2)).Feed("b", Tensor::Of<double>({1}, {10}));
      RunOptions options{.opt_level = level};
      Net::Create(net.Build(), net.workspace(), options)->Run();
      // 12 = 2 * (1 + 0) + 10; with two rows the next step turns it into 34 = 2 * 12 + 10.
      const Numbers expected = window == 1 ? Numbers{12, 38} : Numbers{34, 38};
      EXPECT_EQ(Values(net.Get("all")), expected) << "window " << window << ", level " << level;
    }
  }
}

TEST(LinkOrder, AStepOutputIsWhatTheStepLeavesInTheRowByAnyName) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Link("again", "h", 1);
  net.Step("h_next = Add(x_t, h_prev)").Step("again = Add(h_next, x_t)").Output("all", "h", 1);
  net.forward().add_output("shown");
  AddStrings(&net.forward(), "step_output_src", {"h_next"});
  AddStrings(&net.forward(), "step_output_dst", {"shown"});
  net.Feed("x", Column({1, 2})).Feed("h0", One(0)).Run();
  EXPECT_EQ(Values(net.Get("all")), (Numbers{2, 6}));
  EXPECT_EQ(Values(net.Get("shown")), (Numbers{2, 6}));
}

}  // namespace
}  // namespace stepnet
