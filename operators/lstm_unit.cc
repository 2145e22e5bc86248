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

constexpr int kStates = 2;
constexpr int kGates = 4;
constexpr int kLikeState = 4;  // h, c, dh, dc

Operator& AddInputs(Operator& op) {
  op.Input("h_prev", "[1, N, D] or [N, D], hidden state before the step")
      .Input("c_prev", "the shape of h_prev, cell state before the step")
      .Input("gates", "[1, N, 4 D] or [N, 4 D], before their activations: i, f, o, g");
  return AddStepInputs(op).NumberArg("forget_bias", 0, "added to the forget gate");
}

Operator LstmUnit() {
  Operator op("LSTMUnit");
  AddInputs(op.Doc("Gates, cell and hidden state of one step of an LSTM. Rows with timestep >= their length keep their "
                   "state, or become 0 with drop_states."))
      .Output("h", "the shape of h_prev, hidden state after the step")
      .Output("c", "the shape of h_prev, cell state after the step")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        CheckArity(op, GatedUnit(op, kStates, kGates), problems);
      })
      .Shapes(GatedUnitShapes(kStates, kGates))
      .Gradient([](GradientBuilder& builder) {
        std::vector<std::string> inputs = builder.op().inputs();
        inputs.insert(inputs.end(), {builder.O(0), builder.O(1), builder.GO(0), builder.GO(1)});
        builder.Add({.type = "LSTMUnitGradient",
                     .inputs = std::move(inputs),
                     .outputs = {builder.GI(0), builder.GI(1), builder.GI(2)}});
      })
      .Formula([](Formula& f) {
        const std::vector<Expr> gates = f.Blocks("gates", kGates);
        const Expr c_prev = f.In("c_prev");
        const Expr c = MulAdd(Sigmoid(gates[1] + f.Number("forget_bias")), c_prev, Sigmoid(gates[0]) * Tanh(gates[3]));
        const Expr h = Sigmoid(gates[2]) * Tanh(c);
        f.Out({KeptWhereEnded(f, "h_prev", h), KeptWhereEnded(f, "c_prev", c)});
      });
  return op;
}

Operator LstmUnitGradient() {
  Operator op("LSTMUnitGradient");
  AddInputs(op.Doc("Gradient of LSTMUnit. Computes the gates again. Of rows that have ended, the gradient of the state "
                   "before is that of the state after, or 0 with drop_states."))
      .Input("h", "the shape of h_prev")
      .Input("c", "the shape of h_prev")
      .Input("dh", "the shape of h_prev")
      .Input("dc", "the shape of h_prev")
      .Output("dh_prev", "the shape of h_prev")
      .Output("dc_prev", "the shape of h_prev")
      .Output("dgates", "the shape of gates")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        CheckArity(op, GatedUnit(op, kStates, kGates, kLikeState), problems);
      })
      .Shapes(GatedUnitShapes(kStates, kGates, kLikeState))
      .Formula(DerivativeOf("LSTMUnit"));
  return op;
}

const Registration lstm_unit = LstmUnit();
const Registration lstm_unit_gradient = LstmUnitGradient();

}  // namespace
}  // namespace stepnet
