#include "stepnet/operators/gated_unit.h"

#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// [N, D] of [1, N, D] or [N, D].
Shape Matrix(const Shape& shape) { return shape.rank() == 3 && shape[0] == 1 ? shape.Tail() : shape; }

void ExpectGates(const ShapeQuery& query, int input, int num_gates, const Shape& state) {
  const Shape gates = Matrix(query.In(input).shape);
  // It divides: the size of a state without rows may be anything.
  if (gates.rank() == 2 && gates[0] == state[0] && gates[1] % num_gates == 0 && gates[1] / num_gates == state[1])
    return;
  throw WrongInputs(query, {input}, StrCat("needs gates [", state[0], ", ", num_gates, " x ", state[1], "]"));
}

}  // namespace

Operator& AddStepInputs(Operator& op) {
  return op.OptionalInput("seq_lengths", "[N] int32, steps that each sequence has; left out where sequence_lengths = 0")
      .Input("timestep", "[1] int32, from 0")
      .Arg("sequence_lengths", true,
           "the lengths of the sequences are an input; without it all rows are valid at every step")
      .Arg("drop_states", false, "rows whose sequence has ended become 0; otherwise they keep their state");
}

void CheckArity(const OperatorCall& op, std::vector<NetProblem>* problems) {
  const int has_lengths = op.Bool("sequence_lengths") ? 1 : 0;
  const int needed = op.schema().max_inputs() - (1 - has_lengths);
  if (op.num_inputs() == needed) return;
  problems->push_back({.message = StrCat(op.type(), " with sequence_lengths = ", has_lengths, " has ", needed,
                                         " inputs; here are ", op.num_inputs())});
}

ShapeCheck CheckGatedUnit(int num_states, int num_gates) {
  return [=](const ShapeQuery& query) {
    const Shape state = Matrix(query.In(0).shape);
    if (state.rank() != 2) throw WrongInputs(query, {0}, "needs states [1, N, D] or [N, D]");
    const int gates = num_states, lengths = gates + 1;
    ExpectSameType(query, 0, gates);
    ExpectGates(query, gates, num_gates, state);
    const bool has_lengths = query.op().Bool("sequence_lengths");
    if (has_lengths) {
      ExpectType(query, lengths, {DType::kInt32});
      if (query.In(lengths).shape != Shape({state[0]})) {
        throw WrongInputs(query, {lengths}, StrCat("needs ", state[0], " lengths, one a row"));
      }
    }
    const int timestep = has_lengths ? lengths + 1 : lengths;
    ExpectType(query, timestep, {DType::kInt32});
    ExpectOneElement(query, timestep, "a timestep");
  };
}

Expr KeptWhereEnded(Formula& f, std::string_view before, const Expr& next) {
  if (!f.Has("seq_lengths")) return next;
  const Expr kept = f.Bool("drop_states") ? Expr(0) : f.In(before);
  return Where(f.Scalar("timestep") >= f.Row("seq_lengths"), kept, next);
}

}  // namespace stepnet
