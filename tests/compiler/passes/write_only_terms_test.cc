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

// Row t of base 1 gets c_prev_grad in step t; step t - 1 reads it.
std::string CellStates(const std::string& zeros, const std::string& more, const std::string& given = "") {
  return Backward(StrCat("  before the first step:\n", zeros, kUnit, given,
                         "  h_prev_grad.1: float [1, 2, 4], c_prev_grad.1: float [1, 2, 4], g.1: float [1, 2, 16]",
                         kFromUnit, "  ^c: float [1, 2, 4] added at 1[32 * t] = c_prev_grad.1\n", more));
}

TEST(WriteOnlyTerms, TheOnlyTermOfARowIsWritten) {
  EXPECT_EQ(After(WriteOnlyTerms, CellStates("  ^c at 1 = zero\n", "")),
            Backward(StrCat("  before the first step:\n  ^c at 1 = zero\n", kUnit,
                            "  h_prev_grad.1: float [1, 2, 4], ^c: float [1, 2, 4] at 1[32 * t], g.1: float [1, 2, 16]",
                            kFromUnit)));
}

TEST(WriteOnlyTerms, OtherTermsAreAdded) {
  for (const std::string& before : std::vector<std::string>{
           // Not all rows are zeros.
           CellStates("  ^c at 1[1:] = zero\n", ""),
           CellStates("  ^c at 1 = ^dc at 6\n", ""),
           CellStates("  ^c at 1 = zero\n  ^c at 1[1:] = ^dc at 6\n", ""),
           // There is another term, the term or the row is read in the same step.
           CellStates("  ^c at 1 = zero\n", "  ^c.1: float [1, 2, 4] added at 1[32 * t] = h_t_grad\n"),
           CellStates("  ^c at 1 = zero\n", "  e.1: float [1, 2, 4] = region Tanh(c_prev_grad.1) @1 {}\n"),
           CellStates("  ^c at 1 = zero\n", "  e.1: float [1, 2, 4] = region Tanh(now) @1 {}\n",
                      "  now: float [1, 2, 4] at 1[32 * t]\n"),
       }) {
    EXPECT_EQ(After(WriteOnlyTerms, before), before);
  }
}

}  // namespace
}  // namespace stepnet
