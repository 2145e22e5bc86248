// An LSTM of Caffe2's operators as a RecurrentCase.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {

// An LSTM cell with its projection inside the step, forward and, when asked for, backward.
inline RecurrentCase LstmCase(bool with_gradient) {
  RecurrentCase net;
  const auto fc = [](const std::string& text) {
    OperatorDef op = ParseOp(text);
    AddInt(&op, "axis", 2);
    return op;
  };
  const auto unit = [](const std::string& text) {
    OperatorDef op = ParseOp(text);
    AddInt(&op, "sequence_lengths", 1);
    return op;
  };
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("c", "c0", "c_prev", "c_next");
  net.Captured("w").Captured("b").Captured("lengths");
  net.Step(fc("gates = FC(h_prev, w, b)")).Step("gates = Sum(gates, x_t)");
  net.Step(unit("h_next, c_next = LSTMUnit(h_prev, c_prev, gates, lengths, timestep)"));
  net.Output("h_all", "h", 1).Output("c_last", "c", -1);
  if (!with_gradient) return net;
  net.BackwardStep(
      unit("dh, c_prev_grad, gates_grad = LSTMUnitGradient(h_prev, c_prev, gates, lengths, timestep, h_next, "
           "c_next, h_next_grad, c_next_grad)"));
  net.BackwardStep(fc("w_grad, b_grad, dh2 = FCGradient(h_prev, w, gates_grad)"))
      .BackwardStep("h_prev_grad = Sum(dh, dh2)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
  net.BackwardLink("c_next_grad", "c_grad", 1).BackwardLink("c_prev_grad", "c_grad", 0);
  net.BackwardLink("gates_grad", "x_grad", 0).Param("w", "w_grad").Param("b", "b_grad");
  net.OutputGradient("h_all").WithGradient();
  return net;
}

inline void FeedLstm(RecurrentCase& net, std::int64_t steps, std::int64_t batch, std::int64_t size, unsigned seed = 1) {
  net.Feed("x", Random({steps, batch, 4 * size}, seed, DType::kFloat))
      .Feed("h0", Random({batch, size}, 2, DType::kFloat));
  net.Feed("c0", Random({batch, size}, 3, DType::kFloat)).Feed("w", Random({4 * size, size}, 4, DType::kFloat));
  net.Feed("b", Random({4 * size}, 5, DType::kFloat))
      .Feed("h_all_grad", Random({steps, batch, size}, 6, DType::kFloat));
  net.Feed("lengths",
           Tensor::Of<std::int32_t>(Shape({batch}), std::vector<std::int32_t>(batch, static_cast<int>(steps))));
}

}  // namespace stepnet
