#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string Backward(const std::string& lines) { return "backward " + Step(lines); }

constexpr char kUnit[] =
    "  h_prev: float [1, 2, 4] at 2[32 * t] lent\n"
    "  c_prev: float [1, 2, 4] at 3[32 * t] lent\n"
    "  gates: float [1, 2, 16] at 4[128 * t] lent\n"
    "  timestep: int32 [1] at 5[4 * t]\n"
    "  h_t: float [1, 2, 4] at 2[32 * (t + 1)] lent\n"
    "  c_t: float [1, 2, 4] at 3[32 * (t + 1)] lent\n"
    "  h_t_grad: float [1, 2, 4] at 0[32 * (t + 1)]\n"
    "  c_t_grad: float [1, 2, 4] at 1[32 * (t + 1)]\n";
constexpr char kFromUnit[] =
    " = region LSTMUnitGradient(h_prev, c_prev, gates, timestep, h_t, c_t, h_t_grad, c_t_grad) @0 {arg { name: "
    "\"sequence_lengths\" i: 0 } is_gradient_op: true}\n";

TEST(DropZeros, TermsOfZeroAreNotAdded) {
  const std::string given =
      StrCat("  before the first step:\n  ^h at 0 = ^dy at 6\n", kUnit,
             "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]", kFromUnit);
  EXPECT_EQ(After(DropZeros, Backward(given + "  ^h: float [1, 2, 4] added at 0[32 * t] = h_prev_grad.1\n"
                                              "  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n")),
            Backward(given + "  ^h.1: float [1, 2, 4] added at 0[32 * t] = c_prev_grad.1\n"));
}

}  // namespace
}  // namespace stepnet
