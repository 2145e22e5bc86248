// Wrong graphs are found, by the node and value that are wrong.
#include "stepnet/compiler/verify_graph.h"

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/compiler/refused_graph.h"
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
      "node 0, a packing to ^w packed: a packing has inputs, one output and a call that it is for");
  expect("  a.1: float [4] added at 1 = Tanh(x) @0 {}\n", "node 0, a = Tanh(x): Tanh cannot add to a.1");
  expect("  a.1: float [4] at 1, 8 bytes = Tanh(x) @0 {}\n", "a.1 is float [4], in memory of 8 bytes");
  expect("  a.1: unknown = Copy(x) by blobs @0 {}\n", "a.1 has a home of one size");
  expect("  r: float [4] at 1[18 * t]\n", "r is float [4], in rows of 18 bytes");
  expect("  r: float [4] at 1[16 * (t - 1)]\n", "r begins at row -1 in the first step; there are none below 0");
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
  ExpectProblem(x + "  in each step:\n  a.1: float [1, 4] passed = region Tanh(x) @0 {}\n  once for all steps:\n"
                    "  ^y: float [1, 4] at 2[16 * t] = a.1\n",
                "node 1, a move to ^y: a.1 is not kept and is used by all steps at once");
  ExpectProblem(x + "  for 48 steps at once:\n  a.1: float [1, 4] passed = region Tanh(x) @0 {}\n  in each step:\n"
                    "  ^y: float [1, 4] at 2[16 * t] = a.1\n",
                "node 0, a = Tanh(x): a.1 is passed by 48 steps at once, which is no power of two");
  const std::string passes = "  for 16 steps at once:\n  a.1: float [1, 4] passed = region Tanh(x) @0 {}\n";
  ExpectError([&] { VerifyGraph(ParseGraph("backward step s {\n" + x + passes + "}\n"), "import"); },
              "…node 0, a = Tanh(x): a.1 is passed in a backward step\n  in net \"s\"");
  ExpectProblem("  w: float [4, 4] at 0\n  once for all steps:\n  ^d: float [4, 4] at 1 = MatMul(w, w) @0 {}\n",
                "node 0, d = MatMul(w, w): it cannot run for several steps at once");
  ExpectProblem(x + "  for 16 steps at once:\n  ^y: float [1, 4] at 2[16 * t] = x\n  for 64 steps at once:\n"
                    "  ^z: float [1, 4] at 3[16 * t] = x\n",
                "stages are for 16 and for 64 steps at once");
  ExpectError([] { ParseGraph("step s {\n  for 0 steps at once:\n}\n"); },
              "syntax error: line 2 of a step graph: a stage is for no step before \" steps at once:\"");
}

// Each step writes what the last one leaves, where the sum of all would be.
TEST(VerifyGraph, FindsSumsThatNobodyAsksFor) {
  ExpectProblem(
      "  x: float [1, 8] at 0[32 * t]\n  w: float [8, 8] at 1\n  dy: float [1, 8] at 2[32 * t]\n"
      "  once for all steps:\n  ^dw: float [8, 8] at 3, _, _ = FCGradient(x, w, dy) @0 {}\n",
      "stages run node 0, dw = FCGradient(x, w, dy), before node 0, dw = FCGradient(x, w, dy), of 1 step earlier, "
      "which it waits for by dw");
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
