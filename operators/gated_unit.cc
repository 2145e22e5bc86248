#include "stepnet/operators/gated_unit.h"

#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// [N, D] of [1, N, D] or [N, D].
Shape Matrix(const Shape& shape) { return shape.rank() == 3 && shape[0] == 1 ? shape.Tail() : shape; }

void ExpectGates(const ShapeQuery& query, const GatedUnit& unit, const Shape& state) {
  const Shape gates = Matrix(query.In(unit.gates()).shape);
  // By division: the size of a state without rows may be anything.
  if (gates.rank() == 2 && gates[0] == state[0] && gates[1] % unit.num_gates == 0 &&
      gates[1] / unit.num_gates == state[1]) {
    return;
  }
  throw WrongInputs(query, {unit.gates()},
                    StrCat("needs gates [", state[0], ", ", unit.num_gates, " x ", state[1], "]"));
}

void CheckInputs(const ShapeQuery& query, const GatedUnit& unit) {
  ExpectFloat(query, 0);
  const Shape state = Matrix(query.In(0).shape);
  if (state.rank() != 2) {
    throw WrongInputs(query, {0}, "needs states [1, N, D] or [N, D]");
  }
  for (int i = 1; i < unit.num_states; ++i) ExpectAlike(query, 0, i);
  ExpectSameType(query, 0, unit.gates());
  ExpectGates(query, unit, state);
  if (unit.has_lengths) {
    ExpectType(query, unit.lengths(), {DType::kInt32});
    if (query.In(unit.lengths()).shape != Shape({state[0]})) {
      throw WrongInputs(query, {unit.lengths()}, StrCat("needs ", state[0], " lengths, one a row"));
    }
  }
  ExpectType(query, unit.timestep(), {DType::kInt32});
  ExpectOneElement(query, unit.timestep(), "a timestep");
  for (int i = 0; i < unit.num_like_state; ++i) ExpectAlike(query, 0, unit.like_state(i));
}

}  // namespace

GatedUnit::GatedUnit(const OperatorCall& op, int num_states, int num_gates, int num_like_state)
    : num_states(num_states),
      num_gates(num_gates),
      has_lengths(op.Bool("sequence_lengths")),
      drops_states(op.Bool("drop_states")),
      num_like_state(num_like_state) {}

Operator& AddStepInputs(Operator& op) {
  return op.OptionalInput("seq_lengths", "[N] int32, steps that each sequence has; left out where sequence_lengths = 0")
      .Input("timestep", "[1] int32, from 0")
      .Arg("sequence_lengths", true,
           "the lengths of the sequences are an input; without it all rows are valid at every step")
      .Arg("drop_states", false, "rows whose sequence has ended become 0; otherwise they keep their state");
}

void CheckArity(const OperatorCall& op, const GatedUnit& unit, std::vector<NetProblem>* problems) {
  if (op.num_inputs() == unit.num_inputs()) return;
  problems->push_back({.message = StrCat(op.type(), " with sequence_lengths = ", unit.has_lengths ? 1 : 0, " has ",
                                         unit.num_inputs(), " inputs; here are ", op.num_inputs())});
}

ShapeRule GatedUnitShapes(int num_states, int num_gates, int num_like_state) {
  return [=](const ShapeQuery& query) {
    const GatedUnit unit(query.op(), num_states, num_gates, num_like_state);
    CheckInputs(query, unit);
    const DType dtype = query.In(0).dtype;
    std::vector<TensorInfo> outputs(num_states, {.dtype = dtype, .shape = query.In(0).shape});
    if (num_like_state > 0) outputs.push_back({.dtype = dtype, .shape = query.In(unit.gates()).shape});
    return outputs;
  };
}

Expr KeptWhereEnded(Formula& f, std::string_view before, const Expr& next) {
  if (!f.Has("seq_lengths")) return next;
  const Expr kept = f.Bool("drop_states") ? Expr(0) : f.In(before);
  return Where(f.Scalar("timestep") >= f.Row("seq_lengths"), kept, next);
}

}  // namespace stepnet
