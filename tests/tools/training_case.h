// A recurrent net with gradients whose backward step has a move, for tests of what tools see of runs.
#pragma once

#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {

// h = (h_prev + x) * w for `steps` steps, with its gradient: w's is summed up by a move.
inline RecurrentCase TrainingCase(std::int64_t steps) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  net.Step("s = Sum(x_t, h_prev)").Step("h_next = Mul(s, w)").Output("h_all", "h", 1);
  net.BackwardStep("s_grad = Mul(h_next_grad, w)").BackwardStep("w_step = Mul(h_next_grad, s)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("s_grad", "h_grad", 0).BackwardLink("s_grad", "x_grad", 0);
  net.Param("w", "w_step").OutputGradient("h_all").WithGradient();
  net.Feed("x", Random({steps, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("w", Random({1, 2, 3}, 4));
  net.Feed("h_all_grad", Random({steps, 2, 3}, 3));
  return net;
}

}  // namespace stepnet
