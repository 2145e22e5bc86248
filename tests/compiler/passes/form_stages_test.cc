// What stages are, and in which order they come, is tested with tests/compiler/stages_test.cc.
#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 1, 8] at 0[32 * t]\n"
    "  w: float [8, 8] at 1\n"
    "  b: float [8] at 2\n"
    "  h_prev: float [1, 1, 8] at 3[32 * t]\n";

TEST(FormStages, TakesAProjectionOutOfTheLoopAndKeepsWhatItGives) {
  const std::string projection = " = FC(x, w, b) @0 {arg { name: \"axis\" i: 2 }}\n";
  const std::string loop =
      "  s.1: float [1, 1, 8] = Sum(p.1, h_prev) @1 {}\n"
      "  h.1: float [1, 1, 8] at 3[32 * (t + 1)] = Tanh(s.1) @2 {}\n";
  EXPECT_EQ(After(FormStages, Step(kInputs + ("  p.1: float [1, 1, 8]" + projection) + loop)),
            Step(kInputs + ("  for 64 steps at once:\n  p.1: float [1, 1, 8] kept" + projection) + "  in each step:\n" +
                 loop));
}

TEST(FormStages, CutsAnOperatorWhoseSumsCanWait) {
  const std::string inputs =
      "  x: float [1, 8] at 0[32 * t]\n"
      "  w: float [8, 8] at 1\n"
      "  dy: float [1, 8] at 2[32 * (t + 1)]\n";
  EXPECT_EQ(
      After(FormStages, "backward " + Step(inputs + "  ^dw: float [8, 8] added at 3, ^db: float [8] added at 4, "
                                                    "dx.1: float [1, 8] = FCGradient(x, w, dy) @0 {}\n"
                                                    "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n")),
      "backward " +
          Step(inputs + "  in each step:\n"
                        "  _, _, dx.1: float [1, 8] = FCGradient(x, w, dy) @0 {}\n"
                        "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n"
                        "  once for all steps:\n"
                        "  ^dw: float [8, 8] added at 3, ^db: float [8] added at 4, _ = FCGradient(x, w, dy) @0 {}\n"));
}

}  // namespace
}  // namespace stepnet
