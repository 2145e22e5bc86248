#include "stepnet/core/strings.h"
#include "unit_gradient.h"

namespace stepnet {
namespace {

// The backward step of a unit, whose h_prev_grad is 0, and what is done with that.
std::string Unit(const std::string& moves) {
  return Backward(StrCat("  before the first step:\n  ^h at 0 = ^dy at 6 lent\n", kUnit,
                         "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]",
                         kFromUnit, moves));
}

TEST(DropZeros, TermsOfZeroAreNotAdded) {
  EXPECT_EQ(After("drop_zeros", Unit("  ^h: float [1, 2, 4] added at 0[32 * t] = h_prev_grad.1\n"
                                     "  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n")),
            Unit("  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n"));
}

TEST(DropZeros, KeepsTermsThatAreNotAlwaysZero) {
  const std::string before = Unit("  ^h: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n");
  EXPECT_EQ(After("drop_zeros", before), before);
}

TEST(DropZeros, KeepsMovesThatWrite) {
  const std::string before = Unit("  ^h: float [1, 2, 4] at 0[32 * t] = h_prev_grad.1\n");
  EXPECT_EQ(After("drop_zeros", before), before);
}

}  // namespace
}  // namespace stepnet
