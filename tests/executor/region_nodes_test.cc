// Regions of several operators give the bits that the operators give, in loops, forward and backward, on any executor.
#include <gtest/gtest.h>

#include "layers.h"
#include "recurrent_case.h"
#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/strings.h"
#include "stepnet/executor/executor.h"
#include "stepnet/executor/run_state.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/compiler/join_regions.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

// What the plans of a run have of regions of several operators.
struct RegionCounts {
  int programs = 0;
  int one_by_one = 0;
  int over_steps = 0;  // that run for several steps at once

  void Add(const StepPlan& plan) {
    for (const Instruction& instruction : plan.instructions) {
      if (instruction.type != "Region") continue;
      ++(instruction.text.ends_with(", one by one") ? one_by_one : programs);
      over_steps += instruction.steps_at_once != 1 ? 1 : 0;
    }
  }
};

void RunOn(const NetDef& net, const Feeds& feeds, RunOptions options, RegionCounts* counts, Workspace* workspace) {
  for (const auto& [name, tensor] : feeds) workspace->SetTensor(name, tensor.Clone());
  options.disabled_passes = {"fuse_regions"};
  options.on_plan = [counts](const StepPlan& plan) { counts->Add(plan); };
  RunNetOnce(net, *workspace, options);
}

// Runs the net as it is, and then with regions joined, all and at random, on several executors.
RegionCounts ExpectRegionsChangeNothing(const NetDef& net, const Feeds& feeds, int opt_level) {
  RegionCounts without, counts;
  Workspace expected;
  RunOn(net, feeds, {.executor = "serial", .opt_level = opt_level}, &without, &expected);
  EXPECT_EQ(without.programs + without.one_by_one, 0);
  for (const unsigned seed : {0, 1, 2}) {
    const ExtraPass form([seed](StepGraph* graph) {
      std::mt19937 random(seed);
      JoinRegions(graph, seed == 0 ? nullptr : &random);
      const std::string text = GraphText(*graph);
      EXPECT_EQ(GraphText(ParseGraph(text)), text);
    });
    for (const int threads : {0, 1, 2, 3}) {
      const FilledMemory filled(kFills[threads % 2]);
      RunOptions options{.executor = threads == 0 ? "serial" : "parallel", .threads = threads, .opt_level = opt_level};
      Workspace found;
      RunOn(net, feeds, options, &counts, &found);
      ExpectSameBlobs(expected, found, StrCat("seed ", seed, ", ", threads, " threads, level ", opt_level));
    }
  }
  return counts;
}

NetDef WithGradients(const RecurrentCase& net, const std::string& output, const std::vector<std::string>& inputs) {
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  return AddGradients(def, {output}, inputs).net;
}

// A minimal LSTM of the operators of tests, with a normalisation of rows: i = o = sigmoid, no forget gate.
RecurrentCase Cell() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "c_prev", "c_next").Captured("p");
  net.Step("s = test.Add(x_t, h_prev)").Step("i = test.Sigmoid(s)").Step("g = test.Tanh(s)");
  net.Step("peep = test.Mul(p, c_prev)").Step("f = test.Sigmoid(peep)").Step("kept = test.Mul(f, c_prev)");
  net.Step("new = test.Mul(i, g)").Step("c_next = test.Add(kept, new)").Step("t = test.Tanh(c_next)");
  net.Step("soft = test.Softmax(t)").Step("gelu = Gelu(t)").Step("both = test.Mul(soft, gelu)");
  net.Step("h_next = test.Mul(i, both)").Output("h_all", "h", 1).Output("c_all", "c", 1);
  return net;
}

Feeds CellFeeds(std::int64_t steps) {
  return {{"x", Random({steps, 3, 20}, 1)},
          {"h0", Random({3, 20}, 2)},
          {"c0", Random({3, 20}, 3)},
          {"p", Random({1, 3, 20}, 4)}};
}

class RegionNodes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, RegionNodes, testing::Values(0, 1, 2),
                         [](const auto& info) { return StrCat("level", info.param); });

TEST_P(RegionNodes, GiveTheBitsOfTheirOperatorsForward) {
  for (const std::int64_t steps : {0, 1, 7}) {
    const RegionCounts counts = ExpectRegionsChangeNothing(Cell().Build(), CellFeeds(steps), GetParam());
    EXPECT_GT(counts.programs, 5);
    EXPECT_EQ(counts.one_by_one, 0);
  }
}

TEST_P(RegionNodes, GiveTheBitsOfTheirOperatorsBackward) {
  const NetDef net = WithGradients(Cell(), "h_all", {"x", "h0", "c0", "p"});
  for (const std::int64_t steps : {1, 7}) {
    const RegionCounts counts = ExpectRegionsChangeNothing(net, CellFeeds(steps), GetParam());
    EXPECT_GT(counts.programs, 20);
  }
}

// What stands between two products goes over time with them, as regions with the rows of all steps.
TEST(RegionNodesOverTime, HaveTheRowsOfTheirSteps) {
  NEEDS_ALL_PASSES();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  for (const char* weight : {"w", "b", "v"}) net.Captured(weight);
  OperatorDef first = ParseOp("p = FC(x_t, w, b)"), second = ParseOp("q = FC(n, v, b)");
  AddInt(&first, "axis", 2);
  AddInt(&second, "axis", 2);
  net.Step(first).Step("g = Gelu(p)").Step("e = Erf(g)").Step("n = test.Mul(g, e)").Step(second);
  net.Step("s = test.Add(q, h_prev)").Step("h_next = test.Tanh(s)").Output("h_all", "h", 1);
  const Feeds feeds = {{"x", Random({70, 2, 16}, 1)},
                       {"h0", Random({2, 16}, 2)},
                       {"w", Random({16, 16}, 3)},
                       {"b", Random({16}, 4)},
                       {"v", Random({16, 16}, 5)}};
  EXPECT_GT(ExpectRegionsChangeNothing(net.Build(), feeds, kMaxOptLevel).over_steps, 3);
  const NetDef with_gradients = WithGradients(net, "h_all", {"x", "h0", "w", "v"});
  EXPECT_GT(ExpectRegionsChangeNothing(with_gradients, feeds, kMaxOptLevel).over_steps, 3);
}

struct CellNetAndFeeds {
  NetDef net;
  Feeds feeds;
  std::vector<std::string> parameters;
};

// A cell of examples/cells in float.
CellNetAndFeeds ExampleCell(const std::string& name) {
  CellCase cell{.cell = ReadExampleCell(name), .num_steps = 5, .batch = 3};
  const CellNet net = cell.Expand();
  CellNetAndFeeds made{.net = net.net, .feeds = {}, .parameters = net.parameters};
  for (const auto& [blob, tensor] : cell.RandomValues(net)) {
    Tensor& feed = made.feeds.emplace_back(blob, tensor).second;
    if (tensor.dtype() != DType::kDouble) continue;
    feed = Tensor(DType::kFloat, tensor.shape());
    std::copy_n(tensor.data<double>(), tensor.size(), feed.data<float>());
  }
  return made;
}

// What stands between the products of a step, Splits and constants among it, is one program, and nothing else is left.
TEST(RegionNodesOfCells, AreAllThatStandsBetweenProducts) {
  const std::map<std::string, std::vector<std::string>> types_of = {
      {"coupled_lstm", {"FC", "FC", "Region"}},
      {"gru", {"FC", "Split", "FC", "Region", "FC", "Region"}},
      {"gru_reset_after", {"FC", "Split", "FC", "Region"}},
      {"indrnn", {"FC", "Region"}},
      {"lstm", {"FC", "FC", "Region"}},
      {"lstmp", {"FC", "FC", "Region", "FC"}},
      {"mi_lstm", {"FC", "FC", "Region"}},
      {"min_gru", {"FC", "Region"}},
      {"peephole_lstm", {"FC", "FC", "Region"}},
      {"slstm", {"FC", "FC", "Region"}},
  };
  const ExtraPass form([](StepGraph* graph) { JoinRegions(graph); });
  for (const auto& [name, types] : types_of) {
    const CellNetAndFeeds cell = ExampleCell(name);
    std::vector<std::string> found;
    Workspace workspace;
    for (const auto& [blob, tensor] : cell.feeds) workspace.SetTensor(blob, tensor.Clone());
    RunNetOnce(cell.net, workspace, {.opt_level = 0, .on_plan = [&](const StepPlan& plan) {
                                       for (const Instruction& instruction : plan.instructions) {
                                         found.push_back(instruction.type);
                                         EXPECT_FALSE(instruction.text.ends_with("one by one")) << instruction.text;
                                       }
                                     }});
    EXPECT_EQ(found, types) << name;
  }
}

TEST_P(RegionNodes, OfCellsGiveTheBitsOfTheirOperators) {
  int programs = 0;
  for (const std::string& name : ExampleCells()) {
    SCOPED_TRACE(name);
    CellNetAndFeeds cell = ExampleCell(name);
    ExpectRegionsChangeNothing(cell.net, cell.feeds, GetParam());
    const std::string output = cell.net.external_output(0);
    AddBackwardStepNets(&cell.net);
    const NetDef with_gradients = AddGradients(cell.net, {output}, cell.parameters).net;
    programs += ExpectRegionsChangeNothing(with_gradients, cell.feeds, GetParam()).programs;
  }
  EXPECT_GT(programs, 100);
}

// Operators of other sizes than each other cannot be one program, and run one by one.
TEST(RegionNodesOfOtherSizes, RunOneByOne) {
  RecurrentCase net;
  net.Sequence("x", "x_t")
      .Sequence("z", "z_t")
      .State("h", "h0", "h_prev", "h_next")
      .State("k", "k0", "k_prev", "k_next");
  net.Step("a = test.Add(x_t, h_prev)")
      .Step("h_next = Gelu(a)")
      .Step("d = test.Add(z_t, k_prev)")
      .Step("k_next = Gelu(d)");
  net.Output("h_all", "h", 1).Output("k_all", "k", 1);
  const Feeds feeds = {
      {"x", Random({5, 2, 9}, 1)}, {"h0", Random({2, 9}, 2)}, {"z", Random({5, 2, 7}, 3)}, {"k0", Random({2, 7}, 4)}};
  EXPECT_GT(ExpectRegionsChangeNothing(net.Build(), feeds, 0).one_by_one, 0);
}

// A step whose regions are written by hand: its runs, on the bases [T, …] of the text.
std::vector<Tensor> RunText(const std::string& text, const std::vector<Tensor>& bases, std::int64_t steps,
                            int threads) {
  const StepGraph graph = ParseGraph(text);
  VerifyGraph(graph, "parse");
  StepPlan plan = EmitPlan(graph, {.ring_rows = threads == 0 ? 1 : 4});
  RunOptions options{.executor = threads == 0 ? "serial" : "parallel", .threads = threads};
  if (threads > 0) AddSchedules(threads, &plan);
  RunState state(std::make_shared<const StepPlan>(std::move(plan)));
  std::vector<Tensor> copies;
  for (size_t b = 0; b < bases.size(); ++b) state.SetBase(static_cast<int>(b), copies.emplace_back(bases[b].Clone()));
  Workspace workspace;
  state.Prepare(steps, workspace);
  RunContext context;
  MakeExecutor(options)->Run(state, context);
  return copies;
}

TEST(RegionTexts, RunAsTheirOperatorsDo) {
  const std::string inputs =
      "  x: double [1, 2, 3] at 0[48 * t]\n"
      "  h_prev: double [1, 2, 3] at 1[48 * t]\n";
  const std::string h = "h.1: double [1, 2, 3] at 1[48 * (t + 1)]";
  const std::string apart =
      "  a.1: double [1, 2, 3] = test.Add(x, h_prev) @0 {}\n"
      "  b.1: double [1, 2, 3] = Gelu(a.1) @1 {}\n"
      "  " +
      h + " = test.Mul(a.1, b.1) @2 {}\n";
  const std::string joined =
      "  region {\n"
      "    a.1: double [1, 2, 3] local = test.Add(x, h_prev) @0 {}\n"
      "    b.1: double [1, 2, 3] local = Gelu(a.1) @1 {}\n"
      "    " +
      h +
      " = test.Mul(a.1, b.1) @2 {}\n"
      "  }\n";
  const std::vector<Tensor> bases = {Random({9, 2, 3}, 1), Random({10, 2, 3}, 2)};
  for (const char* direction : {"", "backward "}) {
    const auto text = [&](const std::string& lines) { return StrCat(direction, "step s {\n", inputs, lines, "}\n"); };
    const Tensor expected = RunText(text(apart), bases, 9, 0)[1];
    for (const int threads : {0, 1, 2, 3}) {
      ExpectSame(RunText(text(joined), bases, 9, threads)[1], expected, StrCat(direction, threads, " threads"));
    }
  }
}

// Each operator its own numbers, in each step.
TEST(RegionTexts, DrawTheNumbersOfTheirOperators) {
  const auto text = [](const std::string& lines) {
    return StrCat("step s {\n  x: double [1, 40, 30] at 0[9600 * t]\n  h_prev: double [1, 40, 30] at 1[9600 * t]\n",
                  lines, "}\n");
  };
  const auto lines = [](const std::string& indent, const std::string& home) {
    return StrCat(indent, "a.1: double [1, 40, 30]", home, " = Dropout(x) @0 {}\n", indent, "b.1: double [1, 40, 30]",
                  home, " = Dropout(x) @1 {arg { name: \"same_mask_each_step\" i: 1 }}\n", indent,
                  "c.1: double [1, 40, 30]", home, " = test.Add(a.1, b.1) @2 {}\n", indent,
                  "h.1: double [1, 40, 30] at 1[9600 * (t + 1)] = "
                  "test.Add(c.1, h_prev) @3 {}\n");
  };
  const std::vector<Tensor> bases = {Random({4, 40, 30}, 1), Random({5, 40, 30}, 2)};
  const Tensor expected = RunText(text(lines("  ", "")), bases, 4, 0)[1];
  for (const int threads : {0, 2}) {
    const std::string joined = text("  region {\n" + lines("    ", " local") + "  }\n");
    ExpectSame(RunText(joined, bases, 4, threads)[1], expected, StrCat(threads, " threads"));
  }
}

// What formulas do not have runs one by one.
TEST(RegionTexts, RunOnDtypesThatFormulasDoNotHave) {
  const auto text = [](const std::string& lines) {
    return StrCat("step s {\n  x: double [1, 50] at 0[400 * t]\n  h_prev: double [1, 50] at 1[400 * t]\n", lines,
                  "}\n");
  };
  const auto lines = [](const std::string& indent, const std::string& home) {
    return StrCat(indent, "a.1: float16 [1, 50]", home, " = Cast(x) @0 {arg { name: \"to\" s: \"float16\" }}\n", indent,
                  "b.1: double [1, 50]", home, " = Cast(a.1) @1 {arg { name: \"to\" s: \"double\" }}\n", indent,
                  "h.1: double [1, 50] at 1[400 * (t + 1)] = test.Add(b.1, h_prev) @2 {}\n");
  };
  const std::vector<Tensor> bases = {Random({4, 50}, 1), Random({5, 50}, 2)};
  const Tensor expected = RunText(text(lines("  ", "")), bases, 4, 0)[1];
  ExpectSame(RunText(text("  region {\n" + lines("    ", " local") + "  }\n"), bases, 4, 0)[1], expected, "half");
}

// In place of an input, in another order of its elements: not as one program.
TEST(RegionTexts, MemoryThatIsSharedIsOverwrittenWhenItHasBeenRead) {
  const auto text = [](const std::string& lines) {
    return StrCat("step s {\n  x: double [2, 1200] at 0[19200 * t]\n", lines, "}\n");
  };
  const std::string y = "x.1: double [2, 1200] at 0[19200 * t]";
  const std::vector<Tensor> bases = {Random({5, 2, 1200}, 1)};
  const auto expect = [&](const std::string& first, const std::string& last) {
    const Tensor expected = RunText(text("  " + first + "  " + y + last), bases, 5, 0)[0];
    const Tensor found = RunText(text("  region {\n    " + first + "    " + y + last + "  }\n"), bases, 5, 0)[0];
    ExpectSame(found, expected, last);
  };
  expect("a.1: double [2, 1200] = Gelu(x) @0 {}\n", " = Add(x, a.1) @1 {}\n");
  expect("a.1: double [2, 600], b.1: double [2, 600] = test.Split(x) @0 {}\n", " = test.Join(b.1, a.1) @1 {}\n");
}

// What the run of the net throws.
std::string MessageOf(const NetDef& net, const Feeds& feeds, const RunOptions& options) {
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
  return ErrorOf([&] { RunNetOnce(net, workspace, options); });
}

// Where steps run at once, too, the first one is the error, by step and then by operator.
TEST(RegionFaults, AreThoseThatTheOperatorsFind) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  OperatorDef first = ParseOp("p = FC(x_t, w, b)"), second = ParseOp("q = FC(r, w, b)");
  AddInt(&first, "axis", 2);
  AddInt(&second, "axis", 2);
  net.Step(first).Step("a = test.Positive(p)").Step("n = test.Add(a, a)").Step("r = test.Positive(n)").Step(second);
  net.Step("h_next = test.Add(q, h_prev)").Output("h_all", "h", 1);
  const Tensor x = Tensor::Zeros(DType::kDouble, {70, 2, 16}), w = Tensor::Zeros(DType::kDouble, {16, 16});
  for (int i = 0; i < 16; ++i) w.data<double>()[17 * i] = 1;
  x.data<double>()[32 * 50 + 3] = -5;
  x.data<double>()[32 * 20 + 17] = -2;
  const Feeds feeds = {{"x", x}, {"h0", Random({2, 16}, 1)}, {"w", w}, {"b", Tensor::Zeros(DType::kDouble, {16})}};
  const std::string expected = MessageOf(net.Build(), feeds, {.executor = "serial"});
  EXPECT_NE(expected.find("x is -2, must be at least 0\n  at op 1 `a = test.Positive(p)`"), std::string::npos)
      << expected;
  EXPECT_NE(expected.find("step 20"), std::string::npos) << expected;
  const ExtraPass form([](StepGraph* graph) { EXPECT_GT(JoinRegions(graph), 0); });
  for (const int threads : {1, 2, 3}) EXPECT_EQ(MessageOf(net.Build(), feeds, {.threads = threads}), expected);
  EXPECT_EQ(MessageOf(net.Build(), feeds, {.executor = "serial"}), expected);
}

TEST(RegionFaults, NameTheOperator) {
  const auto message = [](const std::string& lines, int threads) -> std::string {
    const std::string text = StrCat("step s {\n  x: double [1, 2, 3] at 0[48 * t]\n", lines, "}\n");
    const std::vector<Tensor> bases = {Random({9, 2, 3}, 1), Random({9, 2, 3}, 2)};
    bases[0].data<double>()[6 * 4 + 5] = -7;
    for (int i = 0; i < 54; ++i) {
      double& value = bases[0].data<double>()[i];
      if (i != 6 * 4 + 5) value = std::abs(value);
    }
    return ErrorOf([&] { RunText(text, bases, 9, threads); });
  };
  const std::string y = "^y: double [1, 2, 3] at 1[48 * t] = test.Add(a.1, b.1) @4 {}\n";
  const std::string apart =
      "  a.1: double [1, 2, 3] = test.Add(x, x) @2 {}\n"
      "  b.1: double [1, 2, 3] = test.Positive(a.1) @3 {}\n  " +
      y;
  const std::string joined =
      "  region {\n"
      "    a.1: double [1, 2, 3] local = test.Add(x, x) @2 {}\n"
      "    b.1: double [1, 2, 3] local = test.Positive(a.1) @3 {}\n    " +
      y + "  }\n";
  const std::string expected = message(apart, 0);
  EXPECT_EQ(expected,
            "invalid argument: x is -14, must be at least 0\n"
            "  at op 3 `b = test.Positive(a)` with a double [1, 2, 3]\n  in net \"s\", step 4");
  for (const int threads : {0, 2}) EXPECT_EQ(message(joined, threads), expected);
}

}  // namespace
}  // namespace stepnet
