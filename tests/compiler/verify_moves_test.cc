// Moves around the loop that lose something, or read what is not there, are found.
#include "stepnet/compiler/verify_moves.h"

#include "stepnet/tests/compiler/refused_graph.h"

namespace stepnet {
namespace {

TEST(VerifyMoves, FindsRowsThatEndBeforeTheyBegin) {
  ExpectProblem("  before the first step:\n  ^h at 0[5:2] = zero\n", "h[5:2] = zero: rows end before they begin");
  ExpectProblem("  before the first step:\n  ^h at 0[1:2] = ^h at 4[2:9] lent\n",
                "h[1:2] = h[2:9]: these are not as many rows");
}

TEST(VerifyMoves, FindsMovesOfRowsThatHoldNothing) {
  const std::string before = "  before the first step:\n", after = "  after the last step:\n", h = "  ^h at 0";
  ExpectProblem(before + h + " = ^m at 1\n", "h = m: nothing has given the rows that it reads");
  ExpectProblem(before + h + "[0:1] = ^h0 at 1 lent\n  ^a at 2 = ^h at 0[1:]\n",
                "a = h[1:]: nothing has given the rows that it reads");
  ExpectProblem(before + h + " += ^h0 at 1 lent\n", "h += h0: nothing has given the rows that it adds to");
  ExpectProblem(before + h + "[0:1] = zero\n  ^h at 0[1:] += ^dh at 1 lent\n",
                "h[1:] += dh: nothing has given the rows that it adds to");
  // In runs of some steps nothing clears them.
  ExpectProblem(before + h + " = zero, in runs of no steps\n  ^h at 0 += ^dh at 1 lent\n",
                "h += dh: nothing has given the rows that it adds to");
  // What only a later move gives.
  ExpectProblem(before + "  ^a at 1 = zero\n" + after + "  ^a at 1 += ^b at 2\n  ^b at 2 = zero\n",
                "a += b: nothing has given the rows that it reads");
  // Steps give row t + 1; without steps nothing does.
  const std::string step = "  x: float [1, 4] at 3[16 * t]\n  h.1: float [1, 4] at 0[16 * (t + 1)] = Tanh(x) @0 {}\n";
  ExpectProblem(before + h + "[0:1] = zero\n" + step + after + "  ^y at 2 = ^h at 0[0:2]\n",
                "y = h[0:2]: nothing has given the rows that it reads");
  ExpectProblem(step + after + "  ^y at 2 = ^h at 0\n", "y = h: nothing has given the rows that it reads");
}

TEST(VerifyMoves, FindsMovesThatLoseWhatIsThere) {
  const std::string before = "  before the first step:\n", h = "  ^h at 0";
  const std::string is_lost = ": it writes over rows that hold something";
  ExpectProblem(before + "  ^a at 0 = numbers\n  ^a at 0 += ^a at 0\n", "a += a: it writes rows that it reads");
  ExpectProblem(before + "  ^a at 0 = zero\n  ^a at 0[1:3] += ^a at 0[2:4]\n",
                "a[1:3] += a[2:4]: it writes rows that it reads");
  ExpectProblem(before + h + " = zero\n  ^h at 0[0:1] = ^h0 at 1 lent\n", "h[0:1] = h0" + is_lost);
  ExpectProblem(before + h + "[0:2] = ^h0 at 1 lent\n  ^h at 0[1:] = zero\n", "h[1:] = zero" + is_lost);
  // A run of few steps has the same rows at both ends.
  ExpectProblem(before + h + "[0:2] = ^h0 at 1 lent\n  ^h at 0[-1:] = zero\n", "h[-1:] = zero" + is_lost);
  ExpectProblem(
      "  x: float [1, 4] at 1[16 * t]\n  h.1: float [1, 4] at 0[16 * t] = Tanh(x) @0 {}\n"
      "  after the last step:\n  ^h at 0[0:1] = zero\n",
      "h[0:1] = zero" + is_lost);
  ExpectProblem(before + "  ^x at 1 = lend\n  ^x at 1 = lend\n", "x = lend" + is_lost);
}

TEST(VerifyMoves, FindsMovesOfRowsThatStepsUseInTurn) {
  const std::string before = "  before the first step:\n", c = "  ^c at 0[0:1] in turns = ^c0 at 1 lent\n";
  ExpectProblem(before + "  ^c at 0[1:] in turns = zero\n",
                "c[1:] = zero: steps may use rows in turn, and these are not the first ones");
  ExpectProblem(before + c + "  ^c at 0[1:] in turns = zero\n",
                "c[1:] = zero: steps may use rows in turn, and these are not the first ones");
  ExpectProblem(before + c + "  after the last step:\n  ^y at 2 = ^c at 0[-1:]\n",
                "y = c[-1:]: steps may use these rows in turn");
}

TEST(VerifyMoves, FindsMovesToWhatTheCallerOwns) {
  const std::string before = "  before the first step:\n", x = "  x: float [1, 4] at 1[16 * t] lent\n";
  ExpectProblem(before + "  ^x at 1 = zero\n" + x, "x = zero: the caller owns the rows that it writes");
  ExpectProblem(before + "  ^x at 1[0:1] += ^h0 at 2 lent\n" + x,
                "x[0:1] += h0: the caller owns the rows that it writes");
  ExpectProblem("  after the last step:\n  ^x at 1 = lend\n",
                "x = lend: what is lent is copied as a whole before the first step");
  ExpectProblem(before + "  ^x at 1[0:1] = lend\n",
                "x[0:1] = lend: what is lent is copied as a whole before the first step");
  ExpectProblem(before + "  ^t at 1 = numbers\n  t: float [1] at 1[4 * t]\n",
                "t = numbers: numbers are int32, and steps see float [1] there");
  StepGraph graph = ParseGraph("step s {\n" + before + "  ^x at 1 = lend\n}\n");
  graph.lent = {};
  ExpectError([&] { VerifyGraph(graph, "copy_lent"); },
              "…after the pass copy_lent: x = lend: the caller has not lent that\n  in net \"s\"");
  graph.lent = {7};
  ExpectError([&] { VerifyGraph(graph, "copy_lent"); },
              "…after the pass copy_lent: there is no base 7\n  in net \"s\"");
}

TEST(VerifyMoves, FindsGiftsThatAreNotTheLast) {
  const std::string before = "  before the first step:\n", after = "  after the last step:\n";
  const std::string sum = before + "  ^sum at 0 = ^dw at 1 lent\n", give = "  ^dw at 1 = give ^sum at 0\n";
  const std::string good = StrCat("step s {\n", sum, after, give, "}\n");
  EXPECT_EQ(GraphText(ParseGraph(good)), good);
  VerifyGraph(ParseGraph(good), "import");
  const std::string is_whole = ": what is given is given as a whole after the last step";
  ExpectProblem(sum + give, "dw = give sum" + is_whole);
  ExpectProblem(sum + after + "  ^dw at 1[0:1] = give ^sum at 0[0:1]\n", "dw[0:1] = give sum[0:1]" + is_whole);
  ExpectProblem(sum + after + "  ^dw at 1 = give ^other at 2\n",
                "dw = give other: nothing has given the rows that it reads");
  ExpectProblem(sum + after + give + give, "dw = give sum: it writes over rows that hold something");
  ExpectProblem(sum + after + give + "  ^sum at 0 += ^dh at 2 lent\n",
                "sum += dh: the caller has been given something before");
}

TEST(VerifyMoves, FindsSumsThatAreNotClearedOnce) {
  const std::string title = "  before the first step:\n", clear = "  s.1 = zero\n";
  const std::string sum = "  x: float [4] at 1\n  s.1: float [4] added summed = x\n";
  ExpectProblem(sum, "steps add to s, and nothing clears it before the first one");
  ExpectProblem(title + clear + clear + sum, "s = zero: a sum of the steps is cleared once, in every run");
  ExpectProblem(title + "  x = zero\n" + sum, "x = zero: that is no sum of the steps");
  ExpectProblem(title + clear + sum + "  after the last step:\n" + clear,
                "s = zero: a sum of the steps is cleared before the first one");
}

TEST(VerifyMoves, AllowsMovesWhoseRowsFollowEachOther) {
  for (const std::string lines : {
           "  before the first step:\n  ^h at 0[0:2] = ^h0 at 1 lent\n  ^h at 0[2:] = zero\n  ^h at 0[-3:] += ^dh at 2 "
           "lent\n",
           "  before the first step:\n  ^h at 0[0:-1] = zero\n  ^h at 0[-1:] = ^dh at 2 lent\n  ^h at 0[1:] += ^d at 3 "
           "lent\n",
           // Rows behind those that steps write.
           "  before the first step:\n  ^y at 0[T:] = zero\n  x: float [1, 4] at 1[16 * t] lent\n"
           "  y.1: float [1, 4] at 0[16 * t] = Tanh(x) @0 {}\n  after the last step:\n  ^z at 2 = ^y at 0\n",
           "  before the first step:\n  ^x at 1 = lend\n  ^x at 1[0:1] += ^dx at 2 lent\n",
       }) {
    const std::string text = StrCat("step s {\n", lines, "}\n");
    const StepGraph graph = ParseGraph(text);
    EXPECT_EQ(GraphText(graph), text);
    VerifyGraph(graph, "import");
  }
}

}  // namespace
}  // namespace stepnet
