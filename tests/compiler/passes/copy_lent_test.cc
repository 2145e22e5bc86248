#include "pass_case.h"

namespace stepnet {
namespace {

// A step that makes y, in row t of `place`, of a row of base 0.
std::string Lines(const std::string& place) {
  return "  x: float [1, 2] at 0[8 * t] lent\n  y.1: float [1, 2] at " + place + " = Tanh(x) @0 {}\n";
}

TEST(CopyLent, CopiesWhatStepsWriteTo) {
  const std::string h0 = "  ^h at 1[0:1] = ^h0 at 2 lent\n";
  EXPECT_EQ(After("copy_lent", Step("  before the first step:\n" + h0 + Lines("0[8 * (t + 1)] lent"))),
            Step("  before the first step:\n  ^x at 0 = lend\n" + h0 + Lines("0[8 * (t + 1)] lent")));
}

TEST(CopyLent, LeavesWhatStepsOnlyRead) {
  const std::string before = Step(Lines("1[8 * t]"));
  EXPECT_EQ(After("copy_lent", before), before);
}

}  // namespace
}  // namespace stepnet
