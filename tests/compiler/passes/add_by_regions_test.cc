#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kTerm[] =
    "  x: float [1, 4] at 0[16 * t]\n"
    "  a.1: float [1, 4] = region Gelu(x) @0 {}\n";

TEST(AddByRegions, WhatIsAddedToARowOfTheStepIsASum) {
  EXPECT_EQ(After("add_by_regions", Step(std::string(kTerm) + "  ^h: float [1, 4] added at 1[16 * t] = a.1\n")),
            Step("  x: float [1, 4] at 0[16 * t]\n"
                 "  ^h.1: float [1, 4] at 1[16 * t]\n"
                 "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                 "  ^h: float [1, 4] in ^h.1 = region Sum(^h.1, a.1) @0 of \"sums over the steps of step\" {}\n"));
}

// The second one adds to what the first one gives.
TEST(AddByRegions, SumsFollowEachOther) {
  EXPECT_EQ(After("add_by_regions", Step(std::string(kTerm) + "  b.1: float [1, 4] = region Erf(x) @1 {}\n"
                                                              "  ^h: float [1, 4] added at 1[16 * t] = a.1\n"
                                                              "  ^h.1: float [1, 4] added in ^h = b.1\n")),
            Step("  x: float [1, 4] at 0[16 * t]\n"
                 "  ^h.2: float [1, 4] at 1[16 * t]\n"
                 "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                 "  b.1: float [1, 4] = region Erf(x) @1 {}\n"
                 "  ^h: float [1, 4] in ^h.2 = region Sum(^h.2, a.1) @0 of \"sums over the steps of step\" {}\n"
                 "  ^h.1: float [1, 4] in ^h.2 = region Sum(^h, b.1) @1 of \"sums over the steps of step\" {}\n"));
}

TEST(AddByRegions, WhatAllStepsAddToAndWindowsStayAsTheyAre) {
  for (const char* memory : {"1", "1[8 * t]", "1 from zero"}) {
    const std::string zeros =
        std::string(memory) == "1 from zero" ? "  before the first step:\n  ^h at 1 = zero\n" : "";
    const std::string before = Step(zeros + kTerm + "  ^h: float [1, 4] added at " + std::string(memory) + " = a.1\n");
    EXPECT_EQ(After("add_by_regions", before), before);
  }
}

TEST(AddByRegions, WhatSomethingElseReadsIsMoved) {
  const std::string before = Step(std::string(kTerm) +
                                  "  ^h: float [1, 4] added at 1[16 * t] = a.1\n"
                                  "  b.1: float [1, 4] kept = region Erf(a.1) @1 {}\n");
  EXPECT_EQ(After("add_by_regions", before), before);
}

}  // namespace
}  // namespace stepnet
