#include "pass_case.h"

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
  EXPECT_EQ(After(SplitHomes, TwoValues("", " in t.1")), TwoValues("", ""));
}

TEST(SplitHomes, WhatIsReadAfterTheLoopStaysInOnePlace) {
  const std::string before = TwoValues(" kept", " in t.1");
  EXPECT_EQ(After(SplitHomes, before), before);
}

TEST(SplitHomes, WhatIsAddedStaysWhereItIsAdded) {
  const std::string before = Step(
      "  ^a: float [1, 2] at 0[8 * t]\n"
      "  ^b: float [1, 2] at 1[8 * t]\n"
      "  g.1: float [1, 2] = ^a\n"
      "  g.2: float [1, 2] added in g.1 = ^b\n"
      "  ^y: float [1, 2] at 2[8 * t] = g.2\n");
  EXPECT_EQ(After(SplitHomes, before), before);
}

}  // namespace
}  // namespace stepnet
