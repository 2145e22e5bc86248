// GRUUnit: the part of a GRU cell after its products, with gates in the order reset, update, output:
//   h = sigmoid(update) h_prev + (1 - sigmoid(update)) tanh(output)
// Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014, eq. 7. The reset gate has done
// its work before, in the products, and is not read here. Rows whose sequence has ended keep their state or become 0;
// nothing of their gates is read, so that whatever stands there does no harm.
#include "stepnet/core/formulas/formula.h"
#include "stepnet/operators/gated_unit.h"

namespace stepnet {
namespace {

void CheckGruUnit(const OperatorCall& op, std::vector<NetProblem>* problems) {
  CheckArity(op, problems);
  if (op.Number("forget_bias") == 0) return;
  problems->push_back({.message = StrCat(op.type(), ": forget_bias is ", op.Number("forget_bias"),
                                         "; a GRU has no forget gate, and Caffe2 ignores the value: make it 0")});
}

Operator GruUnit() {
  Operator op("GRUUnit");
  op.Doc(
        "State of a GRU after one step. Rows with timestep >= their length keep their state, or become 0 with "
        "drop_states.")
      .Input("h_prev", OfFloats("[1, N, D] or [N, D], state before the step"))
      .Input("gates", "[1, N, 3 D] or [N, 3 D], before their activations: reset, update, output");
  AddStepInputs(op)
      .NumberArg("forget_bias", 0, "must be 0: Caffe2 accepts any value here and ignores it")
      .Output("h", Like("h_prev", "state after the step"))
      .Check(CheckGruUnit)
      .CheckShapes(CheckGatedUnit(/*num_states=*/1, /*num_gates=*/3))
      .DerivedGradient({"h_prev", "gates", "seq_lengths", "timestep", "h", "dh"}, {"dh_prev", "dgates"},
                       "Gradient of GRUUnit. Computes the gates again; that of the reset gate is 0. Of rows that have "
                       "ended, the gradient of the state before is that of the state after, or 0 with drop_states.")
      .Formula([](Formula& f) {
        const std::vector<Expr> gates = f.Blocks("gates", 3);
        const Expr update = Sigmoid(gates[1]);
        f.Out({KeptWhereEnded(f, "h_prev", MulAdd(f.In("h_prev"), update, (1 - update) * Tanh(gates[2])))});
      });
  return op;
}

const Registration gru_unit = GruUnit();

}  // namespace
}  // namespace stepnet
