#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// A graph whose blob `t` has two values; the second one lives at `home`.
std::string TwoValues(const std::string& first, const std::string& home) {
  return Step(
      "  x: float [1, 2] at 0[8 * t]\n"
      "  t.1: float [1, 2]" +
      first +
      " = Tanh(x) @0 {}\n"
      "  a.1: float [1, 2] = Relu(t.1) @1 {}\n"
      "  t.2: float [1, 2]" +
      home +
      " = Sigmoid(x) @2 {}\n"
      "  t.3: float [1, 2] in " +
      (home.empty() ? "t.2" : "t.1") +
      " = Tanh(t.2) @3 {}\n"
      "  ^y: float [1, 2] at 1[8 * t] = t.3\n");
}

TEST(SplitHomes, ANameThatIsUsedAgainGetsAHomeOfItsOwn) {
  EXPECT_EQ(After("split_homes", TwoValues("", " in t.1")), TwoValues("", ""));
}

TEST(SplitHomes, WhatIsReadAfterTheLoopIsTheLastValueAlone) {
  const auto values = [](const std::string& first, const std::string& last) {
    return Step(StrCat("  x: float [1, 2] at 0[8 * t]\n  t.1: float [1, 2]", first,
                       " = Tanh(x) @0 {}\n  a.1: float [1, 2] = Relu(t.1) @1 {}\n  t.2: float [1, 2]", last,
                       " = Sigmoid(a.1) @2 {}\n"));
  };
  EXPECT_EQ(After("split_homes", values(" kept", " in t.1")), values("", " kept"));
}

// Row t + 1 of a state, in which a step leaves h.2.
std::string NewRow(const std::string& first, const std::string& more = "",
                   const std::string& given = "  a.1: float [1, 2] = Relu(h.1) @1 {}\n") {
  return Step("  x: float [1, 2] at 0[8 * t]\n" + more + "  h.1: float [1, 2]" + first + " = Tanh(x) @0 {}\n" + given +
              "  h.2: float [1, 2] at 1[8 * (t + 1)] = Sigmoid(a.1) @2 {}\n");
}

TEST(SplitHomes, RowsOutsideAreWhatAStepLeavesThere) {
  EXPECT_EQ(After("split_homes", NewRow(" at 1[8 * (t + 1)]")), NewRow(""));
}

TEST(SplitHomes, RowsThatAreSeenOtherwiseStay) {
  const std::string outside = " at 1[8 * (t + 1)]";
  for (const std::string& before : {
           // Another name shows the row, and an operator that goes by names reads the blob.
           NewRow(outside, "  k: float [1, 2] at 1[8 * (t + 1)]\n"),
           NewRow(outside, "", "  b.1: unknown blob = Copy(h.1) by blobs @1 {}\n  a.1: float [1, 2] = Relu(x) @3 {}\n"),
       }) {
    EXPECT_EQ(After("split_homes", before), before);
  }
}

TEST(SplitHomes, WhatIsAddedStaysWhereItIsAdded) {
  const std::string before = Step(
      "  ^a: float [1, 2] at 0[8 * t]\n"
      "  ^b: float [1, 2] at 1[8 * t]\n"
      "  g.1: float [1, 2] = ^a\n"
      "  g.2: float [1, 2] added in g.1 = ^b\n"
      "  ^y: float [1, 2] at 2[8 * t] = g.2\n");
  EXPECT_EQ(After("split_homes", before), before);
}

}  // namespace
}  // namespace stepnet
