#include "pass_case.h"

namespace stepnet {
namespace {

// Two operators add to base 2.
std::string Sums(const std::string& before, const std::string& stage, const std::string& added,
                 const std::string& home) {
  return Step("  before the first step:\n  ^dw at 2 = " + before + "\n  x: float [1, 2] at 0[8 * t]\n" +
              "  w: float [2, 2] at 1\n  " + stage + ":\n  ^dw: float [2, 2]" + added + home +
              ", _, _ = FCGradient(x, w, x) @0 {}\n  ^dw.1: float [2, 2] added" + home +
              ", _, _ = FCGradient(x, w, x) @1 {}\n");
}

TEST(WriteFirstTerms, TheFirstOperatorThatRunsOnceWrites) {
  EXPECT_EQ(After("write_first_terms", Sums("zero", "once for all steps", " added", " at 2 from zero")),
            Sums("zero, in runs of no steps", "once for all steps", "", " at 2"));
}

TEST(WriteFirstTerms, EachStepAddsToWhatIsThere) {
  for (const char* stage : {"in each step", "for 16 steps at once"}) {
    const std::string before = Sums("zero", stage, " added", " at 2 from zero");
    EXPECT_EQ(After("write_first_terms", before), before);
  }
}

TEST(WriteFirstTerms, SumsThatStartWithMoreThanZerosAreAddedTo) {
  const std::string before = Sums("^dw_before at 3 lent", "once for all steps", " added", " at 2");
  EXPECT_EQ(After("write_first_terms", before), before);
}

TEST(WriteFirstTerms, WhatIsWrittenAlreadyIsLeft) {
  const std::string before = Sums("zero, in runs of no steps", "once for all steps", "", " at 2");
  EXPECT_EQ(After("write_first_terms", before), before);
}

// An operator that adds to two places.
std::string TwoSums(const std::string& before, const std::string& dw, const std::string& db) {
  return Step("  before the first step:\n" + before +
              "  x: float [2, 4] at 0[32 * t]\n  w: float [3, 4] at 1\n  dy: float [2, 3] at 4[24 * t]\n  once for all "
              "steps:\n" +
              "  ^dw: float [3, 4]" + dw + ", ^db: float [3]" + db + ", _ = FCGradient(x, w, dy) @0 {}\n");
}

TEST(WriteFirstTerms, EachOutputIsWrittenToItsMemory) {
  const auto zeros = [](const std::string& without_steps) {
    return "  ^other at 5 = zero\n  ^dw at 2 = zero" + without_steps + "\n  ^db at 3 = zero" + without_steps + "\n";
  };
  EXPECT_EQ(After("write_first_terms", TwoSums(zeros(""), " added at 2 from zero", " added at 3 from zero")),
            TwoSums(zeros(", in runs of no steps"), " at 2", " at 3"));
}

TEST(WriteFirstTerms, OutputsThatShareMemoryAreAdded) {
  const std::string before = TwoSums("  ^dw at 2 = zero\n", " added at 2 from zero", " added at 2 from zero");
  EXPECT_EQ(After("write_first_terms", before), before);
}

TEST(WriteFirstTerms, WhatIsCopiedToMemoryIsAddedTo) {
  const std::string before = TwoSums("  ^dw at 2 = ^dw_init at 5 lent\n", " added at 2", " added at 3");
  EXPECT_EQ(After("write_first_terms", before), before);
}

TEST(WriteFirstTerms, MovesAdd) {
  const std::string before = Step(
      "  before the first step:\n  ^dw at 1 = zero\n  w: float [2] at 0\n  once for all steps:\n"
      "  ^dw: float [2] added at 1 from zero = w\n");
  StepGraph graph = ParseGraph(before);  // wrong, and left as it is
  RunPass("write_first_terms", &graph);
  EXPECT_EQ(GraphText(graph), before);
}

std::string Behind(const std::string& zero, const std::string& lines) {
  return Step("  before the first step:\n  ^dw at 1 = zero" + zero +
              "\n  s.1 = zero\n  w: float [2] at 0\n  x: float [2] at 2[8 * t]\n" +
              "  in each step:\n  s.1: float [2] added summed = x\n  once behind all steps:\n" + lines);
}

TEST(WriteFirstTerms, WhatIsMovedBehindAllStepsIsGivenThere) {
  const std::string end = "  at the end: no t\n";
  EXPECT_EQ(After("write_first_terms",
                  Behind("",
                         "  t.1: float [2] = Mul(s.1, w) @0 {}\n  ^dw: float [2] added at 1 from zero = t.1\n"
                         "  ^dw.1: float [2] added in ^dw = s.1\n" +
                             end)),
            Behind(", in runs of no steps",
                   "  ^dw: float [2] at 1 = Mul(s.1, w) @0 {}\n  ^dw.1: float [2] added in ^dw = s.1\n"));
  // Others read it, too: the move writes.
  const std::string reader = "  ^dv: float [2] at 3 = t.1\n";
  EXPECT_EQ(
      After("write_first_terms",
            Behind("", "  t.1: float [2] = Mul(s.1, w) @0 {}\n  ^dw: float [2] added at 1 from zero = t.1\n" + reader)),
      Behind(", in runs of no steps", "  t.1: float [2] = Mul(s.1, w) @0 {}\n  ^dw: float [2] at 1 = t.1\n" + reader));
}

}  // namespace
}  // namespace stepnet
