// A backward step of an LSTM unit, for passes that look at terms of sums: the gradient of its previous h is 0 by
// formula.
#pragma once

#include <string>

#include "pass_case.h"

namespace stepnet {

inline std::string Backward(const std::string& lines) { return "backward " + Step(lines); }

inline constexpr char kUnit[] =
    "  h_prev: float [1, 2, 4] at 2[32 * t] lent\n"
    "  c_prev: float [1, 2, 4] at 3[32 * t] lent\n"
    "  gates: float [1, 2, 16] at 4[128 * t] lent\n"
    "  timestep: int32 [1] at 5[4 * t]\n"
    "  h_t: float [1, 2, 4] at 2[32 * (t + 1)] lent\n"
    "  c_t: float [1, 2, 4] at 3[32 * (t + 1)] lent\n"
    "  h_t_grad: float [1, 2, 4] at 0[32 * (t + 1)]\n"
    "  c_t_grad: float [1, 2, 4] at 1[32 * (t + 1)]\n";
inline constexpr char kFromUnit[] =
    " = region LSTMUnitGradient(h_prev, c_prev, gates, timestep, h_t, c_t, h_t_grad, c_t_grad) @0 {arg { name: "
    "\"sequence_lengths\" i: 0 } is_gradient_op: true}\n";

}  // namespace stepnet
