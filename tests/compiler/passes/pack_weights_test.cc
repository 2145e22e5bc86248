#include "pass_case.h"

namespace stepnet {
namespace {

// A product with weights in a loop; `more` follows.
std::string Product(const std::string& more) {
  return Step(
      "  h_prev: float [1, 64] at 0[256 * t]\n"
      "  w: float [64, 64] at 1\n"
      "  b: float [64] at 2\n"
      "  h.1: float [1, 64] at 0[256 * (t + 1)] = FC(h_prev, w, b) @0 {}\n" +
      more);
}

TEST(PackWeights, PacksOnceBeforeTheFirstStep) {
  const std::string text = After("pack_weights", Product(""));
  EXPECT_TRUE(text.find("  once for all steps, in runs of ") != std::string::npos) << text;
  EXPECT_TRUE(text.find(" once = packed w for @0\n  in each step:\n") != std::string::npos) << text;
  EXPECT_TRUE(text.find("= FC(h_prev, w, b) with ^\"w packed\" @0 {}\n") != std::string::npos) << text;
}

TEST(PackWeights, LeavesWeightsThatTheStepWrites) {
  const std::string before = Product("  w.1: float [64, 64] at 1 = Tanh(w) @1 {}\n");
  EXPECT_EQ(After("pack_weights", before), before);
}

}  // namespace
}  // namespace stepnet
