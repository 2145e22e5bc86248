// LSTMUnit: the part of an LSTM cell after its products, with gates in the order i, f, o, g:
//   c = sigmoid(f + forget_bias) c_prev + sigmoid(i) tanh(g)
//   h = sigmoid(o) tanh(c)
// Source: Hochreiter, Schmidhuber, "Long Short-Term Memory", 1997, with the forget gate of Gers, Schmidhuber, Cummins,
// "Learning to Forget", 2000. Rows whose sequence has ended keep their state or become 0; nothing of their gates is
// read, so that whatever stands there does no harm.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/gated_unit.h"

namespace stepnet {
namespace {

Operator LstmUnit() {
  Operator op("LSTMUnit");
  op.Doc(
        "Gates, cell and hidden state of one step of an LSTM. Rows with timestep >= their length keep their state, or "
        "become 0 with drop_states.")
      .Input("h_prev", OfFloats("[1, N, D] or [N, D], hidden state before the step"))
      .Input("c_prev", Like("h_prev", "cell state before the step"))
      .Input("gates", "[1, N, 4 D] or [N, 4 D], before their activations: i, f, o, g");
  AddStepInputs(op)
      .NumberArg("forget_bias", 0, "added to the forget gate")
      .Output("h", Like("h_prev", "hidden state after the step"))
      .Output("c", Like("h_prev", "cell state after the step"))
      .Check(CheckArity)
      .CheckShapes(CheckGatedUnit(/*num_states=*/2, /*num_gates=*/4))
      .DerivedGradient({"h_prev", "c_prev", "gates", "seq_lengths", "timestep", "h", "c", "dh", "dc"},
                       {"dh_prev", "dc_prev", "dgates"},
                       "Gradient of LSTMUnit. Computes the gates again. Of rows that have ended, the gradient of the "
                       "state before is that of the state after, or 0 with drop_states.")
      .Formula([](Formula& f) {
        const std::vector<Expr> gates = f.Blocks("gates", 4);
        const Expr c_prev = f.In("c_prev");
        const Expr c = MulAdd(Sigmoid(gates[1] + f.Number("forget_bias")), c_prev, Sigmoid(gates[0]) * Tanh(gates[3]));
        const Expr h = Sigmoid(gates[2]) * Tanh(c);
        f.Out({KeptWhereEnded(f, "h_prev", h), KeptWhereEnded(f, "c_prev", c)});
      });
  return op;
}

const Registration lstm_unit = LstmUnit();

}  // namespace
}  // namespace stepnet
