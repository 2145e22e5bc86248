#include "pass_case.h"

namespace stepnet {
namespace {

TEST(Expand, OperatorsWithAFormulaBecomeRegions) {
  const std::string inputs =
      "  x: float [1, 4] at 0[16 * t]\n"
      "  w: float [4, 4] at 1\n"
      "  b: float [4] at 2\n";
  EXPECT_EQ(After(Expand, Step(inputs + "  a.1: float [1, 4] = Gelu(x) @0 {}\n"
                                        "  p.1: float [1, 4] = FC(a.1, w, b) @1 {}\n"
                                        "  m.1: float [1, 4] = Mod(p.1) @2 {arg { name: \"divisor\" i: 3 }}\n"
                                        "  ^y: float [1, 4] at 3[16 * t] = m.1\n")),
            Step(inputs + "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                          "  p.1: float [1, 4] = FC(a.1, w, b) @1 {}\n"
                          "  m.1: float [1, 4] = region Mod(p.1) @2 {arg { name: \"divisor\" i: 3 }}\n"
                          "  ^y: float [1, 4] at 3[16 * t] = m.1\n"));
}

TEST(Expand, OperatorsOfUnknownShapeStayCalls) {
  const std::string before = Step(
      "  labels: unknown blob of list 0\n"
      "  y.1: unknown blob = Gelu(labels) by blobs @0 {}\n");
  EXPECT_EQ(After(Expand, before), before);
}

}  // namespace
}  // namespace stepnet
