#include "stepnet/core/strings.h"
#include "unit_gradient.h"

namespace stepnet {
namespace {

TEST(DropZeros, TermsOfZeroAreNotAdded) {
  const std::string given =
      StrCat("  before the first step:\n  ^h at 0 = ^dy at 6\n", kUnit,
             "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]", kFromUnit);
  EXPECT_EQ(After(DropZeros, Backward(given + "  ^h: float [1, 2, 4] added at 0[32 * t] = h_prev_grad.1\n"
                                              "  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n")),
            Backward(given + "  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n"));
}

TEST(DropZeros, KeepsTermsThatAreNotAlwaysZero) {
  const std::string before =
      Backward(StrCat("  before the first step:\n  ^h at 0 = ^dy at 6\n", kUnit,
                      "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]",
                      kFromUnit, "  ^h: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n"));
  EXPECT_EQ(After(DropZeros, before), before);
}

TEST(DropZeros, KeepsMovesThatWrite) {
  const std::string before =
      Backward(StrCat("  before the first step:\n  ^h at 0 = ^dy at 6\n", kUnit,
                      "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]",
                      kFromUnit, "  ^h: float [1, 2, 4] at 0[32 * t] = h_prev_grad.1\n"));
  EXPECT_EQ(After(DropZeros, before), before);
}

}  // namespace
}  // namespace stepnet
