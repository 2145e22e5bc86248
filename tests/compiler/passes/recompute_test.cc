#include "pass_case.h"

namespace stepnet {
namespace {

std::string AfterLines(const std::string& lines) { return After("recompute", Step(lines)); }

TEST(RecomputePass, AStepForwardDoesNotKeepWhatIsComputedAgain) {
  const auto step = [](const std::string& kept) {
    return "  x: float [1, 2] at 1[8 * t] lent\n  a.1: float [1, 2]" + kept +
           " = region Tanh(x) @0 {}\n  b.1: float [1, 2] at 0[8 * t] = region Tanh(a.1) @1 {}\n";
  };
  EXPECT_EQ(AfterLines(step(" kept") + "  not kept: a\n"), Step(step("")));
  // Another stage reads it.
  const auto stages = [](const std::string& kept) {
    return "  x: float [1, 2] at 1[8 * t] lent\n  for 4 steps at once:\n  a.1: float [1, 2]" + kept +
           " = region Tanh(x) @0 {}\n  in each step:\n  b.1: float [1, 2] at 0[8 * t] = region Tanh(a.1) @1 {}\n";
  };
  EXPECT_EQ(AfterLines(stages(" kept") + "  not kept: a\n"), Step(stages(" passed")));
}

TEST(RecomputePass, LeavesOtherGraphsAlone) {
  const std::string lines = "  x: float [1, 2] at 1[8 * t] lent\n  a.1: float [1, 2] kept = region Tanh(x) @0 {}\n";
  EXPECT_EQ(AfterLines(lines), Step(lines));
}

// What a step back reads at base 2 a step forward has given, and may give again.
const std::string kSources = "  h_prev: float [1, 2] at 1[8 * t] lent\n";
const std::string kGradient = "  g: float [1, 2] at 0[8 * (t + 1)]\n";
const std::string kKept = "  a: float [1, 2] at 2[8 * t] lent\n";
const std::string kAgain =
    "  b.1: float [1, 2] = region Sigmoid(h_prev) @4 of forward {}\n"
    "  a.1: float [1, 2] = region Tanh(b.1) @5 of forward {}\n";
const std::string kPart = "again step forward {\n" + kSources + kAgain + "  in place of base 2: a.1\n}\n";

std::string AfterBackward(const std::string& lines) { return After("recompute", "backward " + Step(lines) + kPart); }
std::string Backward(const std::string& lines) { return "backward " + Step(lines); }

std::string GivenBy(const std::string& a) {
  return "  p.1: float [1, 2] at 0[8 * t] = region TanhGradient(" + a + ", g) @0 {}\n";
}

TEST(RecomputePass, AStepBackComputesAgainWhatItReads) {
  EXPECT_EQ(AfterBackward(kSources + kKept + kGradient + GivenBy("a")),
            Backward(kSources + kGradient + kAgain + GivenBy("a.1") +
                     "  at the end: no b\n  other memory outside: 2 lent\n"));
  // The step back has no name for the memory of the source.
  EXPECT_EQ(AfterBackward(kKept + kGradient + GivenBy("a") + "  other memory outside: 1 lent\n"),
            Backward(kGradient + kSources + kAgain + GivenBy("a.1") +
                     "  at the end: no b, no h_prev\n  other memory outside: 2 lent\n"));
}

TEST(RecomputePass, ALoopOfItsOwnComputesForManySteps) {
  const auto stages = [](const std::string& before, const std::string& a) {
    return before + "  for 4 steps at once:\n  q.1: float [1, 2] kept = region Tanh(" + a +
           ") @1 {}\n  in each step:\n" + GivenBy("q.1");
  };
  const std::string again =
      "  in each step:\n  b.1: float [1, 2] = region Sigmoid(h_prev) @4 of forward {}\n"
      "  a.1: float [1, 2] kept = region Tanh(b.1) @5 of forward {}\n";
  EXPECT_EQ(
      AfterBackward(kSources + kKept + kGradient + stages("", "a")),
      Backward(kSources + kGradient + stages(again, "a.1") + "  at the end: no b\n  other memory outside: 2 lent\n"));
}

TEST(RecomputePass, NothingIsComputedForNobody) {
  const std::string rest = "  p.1: float [1, 2] at 0[8 * t] = region Tanh(g) @0 {}\n";
  EXPECT_EQ(AfterBackward(kSources + kKept + kGradient + rest),
            Backward(kSources + kGradient + rest + "  other memory outside: 2 lent\n"));
}

}  // namespace
}  // namespace stepnet
