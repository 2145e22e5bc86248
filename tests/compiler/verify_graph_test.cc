// Wrong graphs are found, by the node and value that are wrong.
#include "stepnet/compiler/verify_graph.h"

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(VerifyGraph, FindsWhatNoGraphMayHave) {
  const auto expect = [](const std::string& lines, const std::string& what) {
    const StepGraph graph = ParseGraph(StrCat("step s {\n  x: float [4] at 0\n", lines, "}\n"));
    ExpectError([&] { VerifyGraph(graph, "fold_sums"); },
                StrCat("internal error: after the pass fold_sums: ", what, "\n  in net \"s\""));
  };
  expect(
      "  a.1: float [4] = Tanh(x) @0 {}\n"
      "  a.2: float [4] in a.1 = Tanh(x) @1 {}\n"
      "  b.1: float [4] = Tanh(a.1) @2 {}\n",
      "node 2, b = Tanh(a): a.1 is read when a.2 is in its place");
  expect("  a.1: float [5] = x\n", "node 0, a move to a.1: x, float [4], is moved to a.1, float [5]");
  expect("  _, a.1: float [4] = x\n", "node 0, a move to a.1: a move has one input and one output");
  expect(
      "  y: float [2, 2] at 3\n  w: float [2, 2] at 1\n  b: float [2] at 2\n"
      "  _, ^\"w packed\": uint8 [256] once = packed w for @0\n"
      "  a.1: float [2, 2] = product y [2, 2] * w [2, 2]^T + b by FC(y, w, b) @0 {}\n",
      "node 0, a packing to ^w packed: a packing has one input, one output and a call that it is for");
  expect("  a.1: float [4] added at 1 = Tanh(x) @0 {}\n", "node 0, a = Tanh(x): Tanh cannot add to a.1");
  expect("  a.1: float [4] at 1, 8 bytes = Tanh(x) @0 {}\n", "a.1 is float [4], in memory of 8 bytes");
  expect("  a.1: unknown = Copy(x) by blobs @0 {}\n", "a.1 has a home of one size");
  expect("  r: float [4] at 1[18 * t]\n", "r is float [4], in rows of 18 bytes");
  expect("  r: float [4] at 1[16 * (t - 1)]\n", "r begins at row -1 in the first step; there are none below 0");
  const auto expect_product = [&](const std::string& product, const std::string& what) {
    expect(StrCat("  y: float [2, 2] at 3\n  w: float [2, 2] at 1\n  b: float [2] at 2\n  a.1: float [2, 2] = product ",
                  product, " by FC(y, w, b) @0 {}\n"),
           "node 0, a = FC(y, w, b): a.1 is " + what);
  };
  expect_product("y [2, 3] * w [2, 2]", "no such product: a factor is no matrices that an input holds");
  expect_product("y [4] * w [2, 2]", "no such product: a factor is no matrices that an input holds");
  expect_product("y [4, 1] * w [2, 2]", "no such product: factors have 1 columns and 2 rows");
  expect_product("y [4, 1, 1] * w [2, 2, 1, 1]", "no such product: factors have other batches");
  expect_product("y [1, 4] * w [4, 1]", "no such product: it has 1 elements, its output 4");
  expect_product("y [2, 2] * w [2, 2]^T + y", "no such product: its bias is not one element a column");
  expect_product("sum y [1, 2, 2]", "no such product: rows of a batch are summed");
  expect_product("sum y [2, 2]", "no such product: it has 2 elements, its output 4");
  expect_product("y [2, 2] * w [2, 2]^T", "another product, as FC says");
  expect_product("y [2, 2] * w [2, 2] + b", "another product, as FC says");
  expect("  w: float [2, 2] at 1\n  a.1: float [2, 2] = product w [2, 2] * w [2, 2]; _ by MatMul(w, w) @0 {}\n",
         "node 0, a = MatMul(w, w): MatMul says of 2 outputs what they are; it has 1");
  StepGraph with_row_move = ParseGraph("step s {\n  before the first step:\n  ^h at 0 = ^h0 at 1 lent\n}\n");
  with_row_move.before[0].from.base = 2;
  ExpectError([&] { VerifyGraph(with_row_move, "import"); },
              "…after the pass import: there is no base 2\n  in net \"s\"");
  StepGraph graph = ParseGraph("step s {\n  x: float [4] at 0\n  y.1: float [4] = Tanh(x) @0 {}\n}\n");
  graph.stages = {{.begin = 0, .end = 0}};
  ExpectError([&] { VerifyGraph(graph, "import"); },
              "…after the pass import: some nodes are in no stage\n  in net \"s\"");
  graph.stages.clear();
  graph.values[1].producer = 7;
  ExpectError([&] { VerifyGraph(graph, "import"); },
              "…node 0, y = Tanh(x): it is not the producer of y.1\n  in net \"s\"");
  graph.FindProducers();
  graph.AddValue({.blob = "z", .info = graph.values[1].info, .home = graph.values[0].home, .producer = 0});
  ExpectError([&] { VerifyGraph(graph, "import"); },
              "…after the pass import: z.1 names a producer that does not give it\n  in net \"s\"");
  graph.values.pop_back();
  graph.nodes.insert(graph.nodes.begin(), {.kind = StepNode::Kind::kMove, .inputs = {1}, .outputs = {1}});
  ExpectError([&] { VerifyGraph(graph, "import"); },
              "…node 0, a move to y.1: y.1 is read before it is given\n  in net \"s\"");
}

// What the text of a graph of these lines is refused with.
void ExpectProblem(const std::string& lines, const std::string& what) {
  const std::string text = StrCat("step s {\n", lines, "}\n");
  const StepGraph graph = ParseGraph(text);
  EXPECT_EQ(GraphText(graph), text);
  ExpectError([&] { VerifyGraph(graph, "fold_sums"); },
              StrCat("internal error: after the pass fold_sums: ", what, "\n  in net \"s\""));
}

TEST(VerifyGraph, FindsOperatorsThatDoNotDoWhatIsSaid) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n", z = "  z: float [1, 7] at 1[28 * t]\n";
  ExpectProblem(x + "  a.1: float [1, 9] = region Tanh(x) @0 {}\n",
                "node 0, a = Tanh(x): a.1 is float [1, 9]; Tanh gives float [1, 4]");
  ExpectProblem(x + "  a.1: int64 [1, 4] = region Tanh(x) @0 {}\n",
                "node 0, a = Tanh(x): a.1 is int64 [1, 4]; Tanh gives float [1, 4]");
  ExpectProblem(x + "  ^y: float [1, 5] at 2 = Copy(x) @0 {}\n",
                "node 0, y = Copy(x): ^y is float [1, 5]; Copy gives float [1, 4]");
  ExpectProblem(x + "  a.1: float [1, 4] = Copy(x, x) @0 {}\n",
                "node 0, a = Copy(x, x): Copy does not take 2 inputs and give 1 outputs");
  const StepGraph mul = ParseGraph("step s {\n" + x + z + "  a.1: float [1, 4] = region Mul(x, z) @0 {}\n}\n");
  ExpectError([&] { VerifyGraph(mul, "import"); },
              "…after the pass import: node 0, a = Mul(x, z): Mul cannot read this: ");
  ExpectProblem(x + "  b.1: float [1, 4] = region Tanh(x) @0 {}\n  b.2: float [4, 1] in b.1 = Transpose(b.1) @1 {}\n",
                "node 1, b = Transpose(b): Transpose cannot work in place: b.2 is where it reads b.1");
  ExpectProblem(
      x + "  region {\n    a.1: float [1, 4] local = Gelu(x) @0 {}\n    b.1: float [1, 5] = Erf(a.1) @1 {}\n  }\n",
      "node 0, a region to b.1: b.1 is float [1, 5]; Erf gives float [1, 4]");
}

TEST(VerifyGraph, FindsOperatorsThatGiveNothing) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n";
  ExpectProblem(x + "  _ = Tanh(x) @0 {}\n", "node 0, _ = Tanh(x): Tanh gives nothing of what it has");
}

TEST(VerifyGraph, FindsOperatorsThatRunWithBlobsAndGiveMemory) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n";
  const std::string fault = "node 0, a = Tanh(x): Tanh runs with blobs, and what it gives lives elsewhere";
  ExpectProblem(x + "  a.1: float [1, 4] = Tanh(x) by blobs @0 {}\n", fault);
  ExpectProblem(x + "  a.1: float [1, 4] at 1[16 * t] = Tanh(x) by blobs @0 {}\n", fault);
}

TEST(VerifyGraph, FindsSumsThatStartFromNothing) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n", zero = "  before the first step:\n  ^d at 4 = zero";
  const std::string once = "  once for all steps:\n", in_empty_runs = ", in runs of no steps\n";
  ExpectProblem(zero + "\n" + x + "  ^d: float [1, 4] at 4 from zero = x\n",
                "node 0, a move to ^d: ^d is written where terms are added to zeros");
  const std::string is_not_cleared = "base 4 starts from zero, and nothing clears it before the first step";
  ExpectProblem(x + "  ^d: float [1, 4] added at 4 from zero = x\n", is_not_cleared);
  ExpectProblem(zero + in_empty_runs + x + "  ^d: float [1, 4] added at 4 from zero = x\n", is_not_cleared);
  ExpectProblem(
      "  before the first step:\n  ^d at 4[1:] = zero\n" + x + "  ^d: float [1, 4] added at 4 from zero = x\n",
      is_not_cleared);
  const std::string is_not_written =
      "node 0, a move to ^d: ^d is the first in memory that nothing clears, and does not write all of it once";
  ExpectProblem(zero + in_empty_runs + x + "  ^d: float [1, 4] added at 4 = x\n", is_not_written);
  ExpectProblem(zero + in_empty_runs + x + "  ^d: float [1, 4] at 4 = x\n", is_not_written);
  const std::string fc = "  y: float [2, 4] at 0[32 * t]\n  w: float [3, 4] at 1\n  dy: float [2, 3] at 2[24 * t]\n";
  ExpectProblem(
      zero + in_empty_runs + fc + once + "  ^d: float [3, 4] at 4, 64 bytes, _, _ = FCGradient(y, w, dy) @0 {}\n",
      "node 0, d, _, _ = FCGradient(y, w, dy): ^d is the first in memory that nothing clears, and does not "
      "write all of it once");
  ExpectProblem(zero + in_empty_runs + "  d: float [1, 4] at 4\n  a.1: float [1, 4] = region Tanh(d) @0 {}\n",
                "node 0, a = Tanh(d): d is read before it is cleared or written");
}

TEST(VerifyGraph, FindsWeightsThatArePackedForNobody) {
  const std::string inputs = "  x: float [1, 4] at 0[16 * t]\n  w: float [4, 4] at 1\n  v: float [4, 4] at 3\n";
  const std::string once = "  once for all steps:\n  ^p: uint8 [64] once = packed ", loop = "  in each step:\n";
  ExpectProblem(inputs + once + "w for @0\n" + loop + "  a.1: float [1, 4] = region Tanh(x) @0 {}\n",
                "node 0, a packing to ^p: Tanh packs nothing");
  ExpectProblem(inputs + once + "v for @0\n" + loop + "  a.1: float [1, 4] = FC(x, w) with ^p @0 {}\n",
                "node 1, a = FC(x, w): ^p is not made of w");
  ExpectProblem(
      inputs + "  in each step:\n  ^p: uint8 [64] once = packed w for @0\n  a.1: float [1, 4] = FC(x, w) @0 {}\n",
      "node 0, a packing to ^p: weights are packed once for all steps");
}

TEST(VerifyGraph, FindsStagesThatDoNotKeepTheOrderOfALoop) {
  const std::string h = "  h_prev: float [1, 4] at 0[16 * t]\n", x = "  x: float [1, 4] at 1[16 * t]\n";
  ExpectProblem(
      h + "  for 64 steps at once:\n  h.1: float [1, 4] at 0[16 * (t + 1)] = region Tanh(h_prev) @0 {}\n",
      "stages run node 0, h = Tanh(h_prev), before node 0, h = Tanh(h_prev), of 1 step earlier, which it waits "
      "for by h");
  // Rows are read 64 steps later, by the next chunk.
  VerifyGraph(ParseGraph("step s {\n" + h +
                         "  for 64 steps at once:\n  h.1: float [1, 4] at 0[16 * (t + 64)] = region "
                         "Tanh(h_prev) @0 {}\n}\n"),
              "import");
  ExpectProblem(h + "  once for all steps:\n  h.1: float [1, 4] at 0[16 * (t + 64)] = region Tanh(h_prev) @0 {}\n",
                "stages run node 0, h = Tanh(h_prev), before node 0, h = Tanh(h_prev), of 64 steps earlier, which it "
                "waits for by h");
  ExpectProblem(
      h + "  in each step:\n  a.1: float [1, 4] kept = region Tanh(h_prev) @0 {}\n  in each step:\n"
          "  h.1: float [1, 4] at 0[16 * (t + 1)] = region Tanh(a.1) @1 {}\n",
      "stages run node 0, a = Tanh(h_prev), before node 1, h = Tanh(a), of 1 step earlier, which it waits for "
      "by h");
  ExpectProblem(x + "  for 64 steps at once:\n  a.1: float [1, 4] = region Tanh(x) @0 {}\n  in each step:\n"
                    "  ^y: float [1, 4] at 2[16 * t] = a.1\n",
                "node 0, a = Tanh(x): a.1 is not kept and is used by several steps at once");
  ExpectProblem(x + "  in each step:\n  a.1: float [1, 4] = region Tanh(x) @0 {}\n  in each step:\n"
                    "  ^y: float [1, 4] at 2[16 * t] = a.1\n",
                "node 1, a move to ^y: a.1 is not kept and is used by two stages");
  ExpectProblem("  w: float [4, 4] at 0\n  once for all steps:\n  ^d: float [4, 4] at 1 = MatMul(w, w) @0 {}\n",
                "node 0, d = MatMul(w, w): it cannot run for several steps at once");
  ExpectProblem(x + "  for 16 steps at once:\n  ^y: float [1, 4] at 2[16 * t] = x\n  for 64 steps at once:\n"
                    "  ^z: float [1, 4] at 3[16 * t] = x\n",
                "stages are for 16 and for 64 steps at once");
  ExpectError([] { ParseGraph("step s {\n  for 0 steps at once:\n}\n"); },
              "syntax error: line 2 of a step graph: a stage is for no step before \" steps at once:\"");
}

TEST(VerifyGraph, FindsRowsThatEndBeforeTheyBegin) {
  ExpectProblem("  before the first step:\n  ^h at 0[5:2] = zero\n", "h[5:2] = zero: rows end before they begin");
  ExpectProblem("  before the first step:\n  ^h at 0[1:2] = ^h at 4[2:9] lent\n",
                "h[1:2] = h[2:9]: these are not as many rows");
}

TEST(VerifyGraph, FindsOperatorsOfOneNumber) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n  w: float [3, 4] at 1\n  dy: float [1, 3] at 2[12 * t]\n";
  ExpectProblem(x + "  a.1: float [1, 4] = Tanh(x) @3 {}\n  b.1: float [1, 4] = Relu(x) @3 {}\n",
                "node 1, b = Relu(x): @3 is a = Tanh(x), too");
  ExpectProblem(x + "  a.1: float [1, 4] = Tanh(x) @3 {}\n  b.1: float [1, 4] = Tanh(x) @3 {}\n",
                "node 1, b = Tanh(x): @3 is a = Tanh(x), too");
  ExpectProblem(
      x + "  region {\n    a.1: float [1, 4] local = Tanh(x) @3 {}\n    b.1: float [1, 4] = Tanh(a.1) @3 {}\n  }\n",
      "node 0, a region to b.1: @3 is a = Tanh(x), too");
  const auto gradient = [](const std::string& dw, const std::string& dx) {
    return StrCat("  ", dw, ", _, ", dx, " = FCGradient(x, w, dy) @3 {}\n");
  };
  // Two nodes for the outputs of one, as form_stages makes them.
  VerifyGraph(
      ParseGraph("step s {\n" + x + gradient("_", "dx.1: float [1, 4]") + gradient("dw.1: float [3, 4]", "_") + "}\n"),
      "form_stages");
  ExpectProblem(x + gradient("e.1: float [3, 4]", "dx.1: float [1, 4]") + gradient("dw.1: float [3, 4]", "_"),
                "node 1, dw, _, _ = FCGradient(x, w, dy): @3 is e, _, dx = FCGradient(x, w, dy), too");
}

TEST(VerifyGraph, FindsMovesOfRowsThatHoldNothing) {
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

TEST(VerifyGraph, FindsMovesThatLoseWhatIsThere) {
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

TEST(VerifyGraph, FindsMovesToWhatTheCallerOwns) {
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

TEST(VerifyGraph, FindsGiftsThatAreNotTheLast) {
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

TEST(VerifyGraph, AllowsMovesWhoseRowsFollowEachOther) {
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

TEST(VerifyGraph, FindsWhatNoPassChanges) {
  const std::string rows = "  before the first step:\n  ^h at 0[0:1] = ^h_init at 1 lent\n";
  const auto expect = [](const std::string& after, const std::string& what) {
    GraphVerifier verifier;
    verifier.Verify(ParseGraph("step s {\n  before the first step:\n  ^h at 0[0:1] = ^h_init at 1 lent\n}\n"),
                    "import");
    ExpectError([&] { verifier.Verify(ParseGraph(after), "expand"); }, "…after the pass expand: " + what);
  };
  expect("backward step s {\n" + rows + "}\n", "steps run forward before the pass\n  in net \"s\"");
  expect("step s {\n  before the first step:\n  ^h at 0[0:1] = zero\n  ^h at 0[1:2] = ^h_init at 1 lent\n}\n",
         "the pass has taken away h[0:1] = h_init\n  in net \"s\"");
}

// Runs h = tanh(x + h) with a pass behind the others.
std::string ErrorBehind(const std::function<void(StepGraph*)>& pass) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Add(x_t, h_prev)").Step("h_next = Tanh(s)").Output("h_all", "h", 1);
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {4, 1, 2}));
  workspace.SetTensor("h0", Tensor::Zeros(DType::kFloat, {1, 2}));
  const ExtraPass extra(pass);
  try {
    RunNetOnce(net.Build(), workspace, {.disabled_passes = {"fuse_regions"}});
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(VerifyGraph, FindsWhatAPassBreaks) {
  const auto change_temporaries = [](const std::function<void(StepValue*)>& change) {
    return ErrorBehind([&](StepGraph* graph) {
      for (StepValue& value : graph->values) {
        if (value.producer >= 0 && graph->homes[value.home].kind == Home::Kind::kTemporary) change(&value);
      }
    });
  };
  EXPECT_EQ(ErrorBehind([](StepGraph*) {}), "");
  EXPECT_EQ(change_temporaries([](StepValue* value) { value->info.shape = Shape({1}); }),
            "after the pass extra: node 0, s = Add(x_t, h_prev): s.1 is float [1]; Add gives float [1, 1, 2]");
  EXPECT_EQ(change_temporaries([](StepValue* value) { value->info.dtype = DType::kInt64; }),
            "after the pass extra: node 0, s = Add(x_t, h_prev): s.1 is int64 [1, 1, 2]; Add gives float [1, 1, 2]");
  for (const std::int64_t steps : {std::int64_t{4}, kAllSteps}) {
    const std::string message = ErrorBehind([&](StepGraph* graph) {
      const auto end = static_cast<int>(graph->nodes.size());
      graph->stages = {{.begin = 0, .end = end, .steps_at_once = steps}};
      for (Home& home : graph->homes) home.kept = home.kind == Home::Kind::kTemporary;
    });
    EXPECT_TRUE(message.starts_with("after the pass extra: stages run node ")) << message;
  }
  EXPECT_EQ(ErrorBehind([](StepGraph* graph) { graph->before.erase(graph->before.begin()); }),
            "after the pass extra: the pass has taken away h[0:1] = h0");
  EXPECT_EQ(ErrorBehind([](StepGraph* graph) { graph->backward = true; }),
            "after the pass extra: steps run forward before the pass");
}

}  // namespace
}  // namespace stepnet
