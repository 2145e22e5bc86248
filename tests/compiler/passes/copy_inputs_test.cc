#include "pass_case.h"

namespace stepnet {
namespace {

// y = Tanh(x), where both are rows of one state.
std::string Activation(const std::string& x, const std::string& y) {
  return Step("  x: float [1, 2] at " + x + "\n  y.1: float [1, 2] at " + y + " = Tanh(x) @3 {}\n");
}

TEST(CopyInputs, CopiesWhatAnOperatorMightOverwrite) {
  EXPECT_EQ(After("copy_inputs", Step("  x: float [2, 2] at 0[8 * t]\n"
                                      "  y.1: float [2, 2] at 0[8 * (t + 1)] = Tanh(x) @3 {}\n")),
            Step("  x: float [2, 2] at 0[8 * t]\n"
                 "  \"x for op 3\".1: float [2, 2] = x\n"
                 "  y.1: float [2, 2] at 0[8 * (t + 1)] = Tanh(\"x for op 3\".1) @3 {}\n"
                 "  at the end: no \"x for op 3\"\n"));
}

TEST(CopyInputs, LeavesOtherRowsAndWhatWorksInPlace) {
  for (const char* y : {"0[8 * (t + 1)]", "0[8 * t]", "1[8 * t]"}) {
    const std::string before = Activation("0[8 * t]", y);
    EXPECT_EQ(After("copy_inputs", before), before);
  }
}

TEST(CopyInputs, CopiesForOperatorsThatDoNotWorkInPlace) {
  const std::string weights = "  w: float [2, 2] at 1\n  b: float [2] at 2\n";
  EXPECT_EQ(After("copy_inputs", Step("  x: float [1, 2] at 0[8 * t]\n" + weights +
                                      "  y.1: float [1, 2] at 0[8 * t] = FC(x, w, b) @0 {}\n")),
            Step("  x: float [1, 2] at 0[8 * t]\n" + weights +
                 "  \"x for op 0\".1: float [1, 2] = x\n"
                 "  y.1: float [1, 2] at 0[8 * t] = FC(\"x for op 0\".1, w, b) @0 {}\n"
                 "  at the end: no \"x for op 0\"\n"));
}

}  // namespace
}  // namespace stepnet
