#include "pass_case.h"
#include "stepnet/core/strings.h"

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

TEST(AddByRegions, AnEmptyBatchHasNoSums) {
  const std::string text = Step(
      "  x: float [0, 4] at 0[0 * t]\n"
      "  a.1: float [0, 4] = region Gelu(x) @0 {}\n"
      "  ^h: float [0, 4] added at 1[0 * t] = a.1\n");
  EXPECT_EQ(After("add_by_regions", text), text);
}

TEST(AddByRegions, WhatIsAddedOneAfterTheOtherIsOneSum) {
  const std::string given = std::string(kTerm) + "  b.1: float [1, 4] = region Erf(x) @1 {}\n";
  const std::string first = "  ^h: float [1, 4] added at 1[16 * t] = a.1\n",
                    second = "  ^h.1: float [1, 4] added in ^h = b.1\n";
  EXPECT_EQ(
      After("add_by_regions", Step(given + first + second)),
      Step("  x: float [1, 4] at 0[16 * t]\n"
           "  ^h.2: float [1, 4] at 1[16 * t]\n"
           "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
           "  b.1: float [1, 4] = region Erf(x) @1 {}\n"
           "  ^h.1: float [1, 4] in ^h.2 = region Sum(^h.2, a.1, b.1) @1 of \"sums over the steps of step\" {}\n"));
}

// The second one adds to what the first one gives, where that is read, or added to by another name.
TEST(AddByRegions, WhatSomethingSeesBetweenIsASumOfItsOwn) {
  const std::string given = std::string(kTerm) + "  b.1: float [1, 4] = region Erf(x) @1 {}\n";
  const std::string first = "  ^h: float [1, 4] added at 1[16 * t] = a.1\n";
  const std::string second = "  ^h.1: float [1, 4] added in ^h = b.1\n";
  const auto sum = [](const char* before, const char* after, const char* terms, int op) {
    return StrCat("  ", after, ": float [1, 4] in ", before, " = region Sum(", terms, ") @", op,
                  " of \"sums over the steps of step\" {}\n");
  };
  const std::string begin =
      "  x: float [1, 4] at 0[16 * t]\n  ^h.2: float [1, 4] at 1[16 * t]\n" + given.substr(given.find('\n') + 1);
  const std::string read = "  c.1: float [1, 4] kept = region Erf(^h) @2 {}\n";
  EXPECT_EQ(After("add_by_regions", Step(given + first + read + second)),
            Step(begin + sum("^h.2", "^h", "^h.2, a.1", 0) + read + sum("^h.2", "^h.1", "^h, b.1", 1)));
  // What another name shows of the same row. It stays a move, since a term of it is kept.
  const std::string kept = "  c.1: float [1, 4] kept = region Erf(x) @2 {}\n";
  const std::string added = "  ^k: float [1, 4] added at 1[16 * t] = c.1\n";
  EXPECT_EQ(After("add_by_regions", Step(given + kept + first + added + second)),
            Step(begin + kept + sum("^h.2", "^h", "^h.2, a.1", 0) + added + sum("^h.2", "^h.1", "^h, b.1", 1)));
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
