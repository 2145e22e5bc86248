#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  h_prev: float [1, 64] at 0[256 * t]\n"
    "  w: float [64, 64] at 1\n"
    "  b: float [64] at 2\n";
constexpr char kProduct[] = "  h.1: float [1, 64] at 0[256 * (t + 1)] = FC(h_prev, w, b) @0 {}\n";

std::string Product(const std::string& more) { return Step(std::string(kInputs) + kProduct + more); }

TEST(PackWeights, PacksOnceBeforeTheFirstStep) {
  EXPECT_EQ(After("pack_weights", Product("")),
            Step(std::string(kInputs) +
                 "  once for all steps, in runs of 16 steps or more:\n"
                 "  ^\"w packed\": uint8 [16384] once = packed w for @0\n"
                 "  in each step:\n"
                 "  h.1: float [1, 64] at 0[256 * (t + 1)] = FC(h_prev, w, b) with ^\"w packed\" @0 {}\n"));
}

TEST(PackWeights, LeavesWhatTakesManyStepsAtOnce) {
  const std::string before = Step(std::string(kInputs) +
                                  "  for 64 steps at once:\n"
                                  "  a.1: float [1, 64] kept = FC(h_prev, w, b) @0 {}\n"
                                  "  in each step:\n"
                                  "  h.1: float [1, 64] at 3[256 * (t + 1)] = Tanh(a.1) @1 {}\n");
  EXPECT_EQ(After("pack_weights", before), before);
}

TEST(PackWeights, LeavesWeightsThatTheStepWrites) {
  const std::string before = Product("  w.1: float [64, 64] at 1 = Tanh(w) @1 {}\n");
  EXPECT_EQ(After("pack_weights", before), before);
}

}  // namespace
}  // namespace stepnet
