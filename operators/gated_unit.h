// What LSTMUnit and GRUUnit share: arguments, the checks of their inputs, and which rows a step changes.
//
// States are [1, N, D] or [N, D]; gates are [1, N, G D] or [N, G D], G gates of D values one after another.
#pragma once

#include <string_view>
#include <vector>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {

// Where a unit, or the gradient of one, has its inputs: states, gates, lengths (if any), timestep, then what is like a
// state.
struct GatedUnit {
  int num_states;
  int num_gates;       // of one unit
  bool has_lengths;    // argument sequence_lengths
  bool drops_states;   // argument drop_states
  int num_like_state;  // outputs and their gradients that a gradient operator reads

  GatedUnit(const OperatorCall& op, int num_states, int num_gates, int num_like_state = 0);
  int gates() const { return num_states; }
  int lengths() const { return num_states + 1; }
  int timestep() const { return num_states + 1 + has_lengths; }
  int like_state(int i) const { return timestep() + 1 + i; }
  int num_inputs() const { return timestep() + 1 + num_like_state; }
};

// Declares the inputs behind the gates, seq_lengths and timestep, and the arguments sequence_lengths and drop_states.
Operator& AddStepInputs(Operator& op);

// Adds a problem unless there are as many inputs as sequence_lengths asks for.
void CheckArity(const OperatorCall& op, const GatedUnit& unit, std::vector<NetProblem>* problems);

// Shape rule: the states or, of a gradient, which has inputs like them, those of states and gates. Throws kTypeMismatch
// or kShapeMismatch unless the inputs fit together.
ShapeRule GatedUnitShapes(int num_states, int num_gates, int num_like_state = 0);

// `next` in the rows whose sequence has not ended; in others `before`, a state, or 0 with drop_states.
Expr KeptWhereEnded(Formula& f, std::string_view before, const Expr& next);

}  // namespace stepnet
