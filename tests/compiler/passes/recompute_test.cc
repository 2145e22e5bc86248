#include <memory>

#include "pass_case.h"

namespace stepnet {
namespace {

std::string AfterNotKeeping(const std::string& blob, const std::string& before) {
  StepGraph graph = ParseGraph(before);
  EXPECT_EQ(GraphText(graph), before);
  graph.not_kept = {blob};
  EXPECT_TRUE(RunPass("recompute", &graph));
  VerifyGraph(graph, "the tested one");
  return GraphText(graph);
}

TEST(RecomputePass, AStepForwardDoesNotKeepWhatIsComputedAgain) {
  const auto step = [](const std::string& kept) {
    return Step("  x: float [1, 2] at 1[8 * t] lent\n  a.1: float [1, 2]" + kept +
                " = region Tanh(x) @0 {}\n  b.1: float [1, 2] at 0[8 * t] = region Tanh(a.1) @1 {}\n");
  };
  EXPECT_EQ(AfterNotKeeping("a", step(" kept")), step(""));
  // Another stage reads it.
  const auto stages = [](const std::string& kept) {
    return Step("  x: float [1, 2] at 1[8 * t] lent\n  for 4 steps at once:\n  a.1: float [1, 2]" + kept +
                " = region Tanh(x) @0 {}\n  in each step:\n  b.1: float [1, 2] at 0[8 * t] = region Tanh(a.1) @1 {}\n");
  };
  EXPECT_EQ(AfterNotKeeping("a", stages(" kept")), stages(" passed"));
}

// `part` is a step forward whose last value is read in place of base 3.
std::string AfterComputing(const std::string& part, const std::string& before) {
  StepGraph graph = ParseGraph(before);
  EXPECT_EQ(GraphText(graph), before);
  auto recomputation = std::make_shared<Recomputation>(Recomputation{.part = ParseGraph(part), .given = {}});
  for (StepNode& node : recomputation->part.nodes) node.net = recomputation->part.name;
  recomputation->given = {{3, static_cast<int>(recomputation->part.values.size()) - 1}};
  graph.recomputation = recomputation;
  GraphVerifier verifier;
  verifier.Verify(graph, "parse");
  EXPECT_TRUE(RunPass("recompute", &graph));
  verifier.Verify(graph, "the tested one");
  const std::string after = GraphText(graph);
  EXPECT_EQ(GraphText(ParseGraph(after)), after);
  return after;
}

const std::string kSources = "  h_prev: float [1, 2] at 1[8 * t] lent\n";
const std::string kForward = "step forward {\n" + kSources +
                             "  b.1: float [1, 2] = region Sigmoid(h_prev) @4 {}\n"
                             "  a.1: float [1, 2] = region Tanh(b.1) @5 {}\n}\n";
const std::string kAgain =
    "  b.1: float [1, 2] = region Sigmoid(h_prev) @4 of forward {}\n"
    "  a.1: float [1, 2] = region Tanh(b.1) @5 of forward {}\n";

TEST(RecomputePass, AStepBackComputesAgainWhatItReads) {
  const std::string gradient = "  g: float [1, 2] at 0[8 * (t + 1)]\n", kept = "  a: float [1, 2] at 3[8 * t] lent\n";
  EXPECT_EQ(
      AfterComputing(kForward, "backward " + Step(kSources + kept + gradient +
                                                  "  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(a, g) "
                                                  "@0 {}\n")),
      "backward " + Step(kSources + gradient + kAgain +
                         "  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(a.1, g) @0 {}\n  at the end: no b\n"));
  // The step back has no name for the memory of the source, and so has not said that it is lent.
  EXPECT_EQ(
      AfterComputing(kForward, "backward " + Step(kept + gradient +
                                                  "  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(a, g) "
                                                  "@0 {}\n")),
      "backward " + Step(gradient + "  h_prev: float [1, 2] at 1[8 * t]\n" + kAgain +
                         "  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(a.1, g) @0 {}\n  at the end: no b, "
                         "no h_prev\n"));
}

TEST(RecomputePass, ALoopOfItsOwnComputesForManySteps) {
  const auto stages = [](const std::string& before, const std::string& a) {
    return before + "  for 4 steps at once:\n  q.1: float [1, 2] kept = region Tanh(" + a +
           ") @1 {}\n  in each step:\n  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(q.1, g) @0 {}\n";
  };
  const std::string gradient = "  g: float [1, 2] at 0[8 * (t + 1)]\n", kept = "  a: float [1, 2] at 3[8 * t] lent\n";
  const std::string again =
      "  in each step:\n  b.1: float [1, 2] = region Sigmoid(h_prev) @4 of forward {}\n"
      "  a.1: float [1, 2] kept = region Tanh(b.1) @5 of forward {}\n";
  EXPECT_EQ(AfterComputing(kForward, "backward " + Step(kSources + kept + gradient + stages("", "a"))),
            "backward " + Step(kSources + gradient + stages(again, "a.1") + "  at the end: no b\n"));
}

TEST(RecomputePass, NothingIsComputedForNobody) {
  const std::string gradient = "  g: float [1, 2] at 0[8 * (t + 1)]\n", kept = "  a: float [1, 2] at 3[8 * t] lent\n";
  const std::string rest = "  p.1: float [1, 2] at 0[8 * t] = region Tanh(g) @0 {}\n";
  EXPECT_EQ(AfterComputing(kForward, "backward " + Step(kSources + kept + gradient + rest)),
            "backward " + Step(kSources + gradient + rest));
}

}  // namespace
}  // namespace stepnet
