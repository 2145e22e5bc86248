#include "stepnet/compiler/recomputable.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/recomputed_operators.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/executor/step_of_pairs.h"

namespace stepnet {
namespace {

OperatorDef Product(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

// A net of x, states h and c, w and p, whose steps are a product g of x and what follows.
RecurrentCase Case(const std::vector<std::string>& step) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").State("c", "c0", "c_prev", "c_t").Captured("w");
  net.Captured("p").Step(Product("g = FC(x_t, w)"));
  for (const std::string& op : step) net.Step(op);
  net.Output("h_all", "h", 1);
  return net;
}

ForwardOperator Forward(const RecurrentCase& net) {
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  return ForwardOperator(OperatorCall(def.op(0)));
}

std::vector<RecomputedValue> Values(const ForwardOperator& forward) {
  std::vector<TensorInfo> inputs;
  for (const std::string& input : forward.op.inputs()) {
    const Shape shape = input == "x"                   ? Shape({5, 2, 4})
                        : input == "w" || input == "p" ? Shape({4, 4})
                                                       : Shape({1, 2, 4});
    inputs.push_back({.dtype = DType::kFloat, .shape = shape});
  }
  return MakeForwardPlan(forward, inputs)->recomputable;
}

// What need not be kept, a line for each operator: "t by s: 96 bytes" where s is computed along the way.
std::vector<std::string> Found(const ForwardOperator& forward) {
  std::vector<std::string> lines;
  for (const RecomputedValue& value : Values(forward)) {
    lines.push_back(StrCat(Join(value.blobs, ", "), value.along_way.empty() ? "" : " by " + Join(value.along_way, ", "),
                           ": ", value.bytes, " bytes"));
  }
  std::ranges::sort(lines);
  return lines;
}

std::vector<std::string> FoundIn(const std::vector<std::string>& step) { return Found(Forward(Case(step))); }

using Lines = std::vector<std::string>;

TEST(Recomputable, IsWhatFollowsFromWhatIsThere) {
  NEEDS_ALL_PASSES();
  // It follows from a row of a state, or from a value that is kept anyway, by another that is not.
  EXPECT_EQ(FoundIn({"c_t = Add(g, c_prev)", "t = Tanh(c_t)", "s = Sigmoid(g)", "h_t = Mul(s, t)"}),
            Lines{"t: 32 bytes"});
  EXPECT_EQ(FoundIn({"s = Sigmoid(g)", "n = Negative(s)", "t = Tanh(n)", "c_t = Mul(s, c_prev)", "h_t = Mul(t, c_t)"}),
            Lines{"t by n: 32 bytes"});
}

// A product of the step back reads t, so that it would be kept there.
TEST(Recomputable, IsWhatAProductOfTheLoopGives) {
  NEEDS_ALL_PASSES();
  RecurrentCase read = Case({"t = Tanh(c_prev)"});
  read.Step(Product("q = FC(t, p)")).Step("c_t = Mul(t, q)").Step("h_t = Mul(c_t, g)");
  EXPECT_EQ(Found(Forward(read)), Lines{"q: 32 bytes"});
}

// Those that the same products give are one, behind those that need none.
TEST(Recomputable, IsLastWhatProductsAreNeededFor) {
  RecurrentCase net = Case({});
  net.Step(Product("a = FC(h_prev, p)")).Step("s = Sigmoid(a)").Step("u = Tanh(a)");
  net.Step(Product("b = FC(c_prev, p)")).Step("v = Tanh(b)").Step("y = Tanh(c_prev)");
  net.Step("m = Mul(s, u)").Step("n = Mul(v, y)").Step("c_t = Add(m, n)").Step("h_t = Add(c_t, g)");
  std::vector<std::string> blobs;
  for (const RecomputedValue& value : Values(Forward(net))) blobs.push_back(Join(value.blobs, " "));
  EXPECT_EQ(blobs, (Lines{"y", "s u", "v"}));
}

TEST(Recomputable, IsNothingElse) {
  NEEDS_ALL_PASSES();
  const Lines nothing;
  // What follows from a product of many steps that is not kept.
  EXPECT_EQ(FoundIn({"t = Tanh(g)", "c_t = Mul(t, c_prev)", "h_t = Mul(t, c_t)"}), nothing);
  // It is a row of a state, or its blob holds something else in the end.
  EXPECT_EQ(FoundIn({"h_t = Tanh(c_prev)", "c_t = Mul(h_t, g)"}), nothing);
}

// However long a step is, plans are made in a time that is about as long: chains of sums, which nobody keeps.
TEST(Recomputable, IsNothingThatTakesVeryManyOperators) {
  const auto found = [](int length) {
    std::vector<std::string> step = {"a0 = Add(h_prev, c_prev)"};
    for (int i = 1; i < length; ++i) step.push_back(StrCat("a", i, " = Add(a", i - 1, ", c_prev)"));
    step.push_back(StrCat("t = Tanh(a", length - 1, ")"));
    for (const char* op : {"h_t = Mul(t, c_prev)", "c_t = Mul(t, g)"}) step.emplace_back(op);
    return std::ranges::any_of(FoundIn(step),
                               [](const std::string& line) { return line.starts_with("t by a0, a1, "); });
  };
  EXPECT_TRUE(found(200));
  EXPECT_FALSE(found(300));
}

// What each pair of an element of h and one of a row of p gives is many times what the step has of its own for it.
TEST(Recomputable, IsBetterComputedAgainInLongRunsWhereItFollowsFromLess) {
  NEEDS_ALL_PASSES();
  const auto plan = [](std::int64_t size) {
    const ForwardOperator forward = Forward(StepOfPairs());
    std::vector<TensorInfo> inputs;
    for (const std::string& input : forward.op.inputs()) {
      const Shape shape = input == "x" ? Shape({5, 8, 32}) : input == "p" ? Shape({32, size}) : Shape({1, 8, 32});
      inputs.push_back({.dtype = DType::kFloat, .shape = shape});
    }
    return MakeForwardPlan(forward, inputs);
  };
  const auto blobs_of = [](const std::vector<RecomputedValue>& values) {
    std::vector<std::string> blobs;
    for (const RecomputedValue& value : values) blobs.push_back(Join(value.blobs, " "));
    std::ranges::sort(blobs);
    return blobs;
  };
  const auto large = plan(64), small = plan(3);
  EXPECT_EQ(blobs_of(large->recomputable), (Lines{"d", "s", "t"}));
  EXPECT_EQ(blobs_of(large->recomputed), Lines()) << "nothing has run";
  constexpr std::int64_t kSteps = (16 << 20) / (2 * 8 * 32 * 64 * 4);  // of two values, 16 MB
  EXPECT_EQ(NumBetterRecomputed(*large, kSteps), 2);
  EXPECT_EQ(NumBetterRecomputed(*large, kSteps - 1), 1) << "the difference, which is computed as fast as it is read";
  constexpr std::int64_t kStepsOfFast = (1 << 20) / (8 * 32 * 64 * 4);
  EXPECT_EQ(NumBetterRecomputed(*large, kStepsOfFast), 1);
  EXPECT_EQ(NumBetterRecomputed(*large, kStepsOfFast - 1), 0);
  EXPECT_EQ(blobs_of({large->recomputable.begin(), large->recomputable.begin() + 2}), (Lines{"d", "s"}));
  EXPECT_EQ(blobs_of(small->recomputable), (Lines{"d", "s", "t"}));
  EXPECT_EQ(NumBetterRecomputed(*small, 1'000'000), 0) << "it is three times as large";
}

// A state of which step t reads row t + 1 and writes a row behind it, or one that a later step reads.
TEST(Recomputable, IsNotWhatFollowsFromRowsThatAreWrittenAgain) {
  const auto found = [](const std::string& row) {
    const StepGraph graph = ParseGraph(
        "step step {\n  y: float [1, 2] at 0[8 * (t + 1)]\n"
        "  t.1: float [1, 2] kept = Tanh(y) @0 {}\n"
        "  z.1: float [1, 2] at 0[8 * " +
        row + "] = Tanh(t.1) @1 {}\n}\n");
    RecurrentSpec spec;
    NetDef backward;
    *backward.add_op() = ParseOp("s = Tanh(t)");
    spec.backward_step_net = std::make_shared<const NetDef>(backward);
    return FindRecomputable(graph, spec, {0}).size();
  };
  EXPECT_EQ(found("(t + 2)"), 1U);
  EXPECT_EQ(found("(t + 1)"), 0U);
  EXPECT_EQ(found("t"), 0U);
}

TEST(Recomputable, IsNothingThatABackwardStepNetReadsByAProductOrOverwrites) {
  const auto found = [](const std::vector<OperatorDef>& backward) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_t").Captured("w");
    net.Step("t = Tanh(h_prev)").Step("h_t = Mul(t, x_t)").Output("h_all", "h", 1);
    net.BackwardStep("s = TanhGradient(t, h_t_grad)");
    for (const OperatorDef& op : backward) net.BackwardStep(op);
    net.BackwardLink("h_t_grad", "h_grad", 1).BackwardLink("s", "h_grad", 0);
    return Found(ForwardOperator(OperatorCall(net.Build().op(0))));
  };
  EXPECT_EQ(found({}), Lines{"t: 32 bytes"});
  EXPECT_EQ(found({ParseOp("r = Sigmoid(t)")}), Lines{"t: 32 bytes"});
  EXPECT_EQ(found({Product("r = FC(t, w)")}), Lines());
  EXPECT_EQ(found({ParseOp("t = Sigmoid(s)")}), Lines());
}

std::vector<std::string> TextOf(const NetDef& net) {
  std::vector<std::string> lines;
  for (const OperatorDef& op : net.op()) lines.push_back(OperatorText(op));
  return lines;
}

TEST(Recomputable, IsComputedByTheOperatorsOfTheStep) {
  const ForwardOperator forward =
      Forward(Case({"s = Sigmoid(g)", "n = Negative(s)", "t = Tanh(n)", "c_t = Mul(s, c_prev)", "h_t = Mul(t, c_t)"}));
  const NetDef& backward = *forward.spec->BackwardStep();
  std::vector<std::string> after = TextOf(backward);
  EXPECT_EQ(TextOf(WithRecomputed(*forward.spec, {}, backward)), after);
  after.insert(after.begin(), {"n = Negative(s)", "t = Tanh(n)"});
  EXPECT_EQ(TextOf(WithRecomputed(*forward.spec, {"t", "n"}, backward)), after);
  // What nobody reads is not computed.
  EXPECT_EQ(TextOf(WithRecomputed(*forward.spec, {"n"}, backward)), TextOf(backward));
}

}  // namespace
}  // namespace stepnet
