// What LSTMUnit and GRUUnit share: arguments, the checks of their inputs, and which rows a step changes.
//
// States are [1, N, D] or [N, D]; gates are [1, N, G D] or [N, G D], G gates of D values one after another.
#pragma once

#include <string_view>
#include <vector>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {

// Declares the inputs behind the gates, seq_lengths and timestep, and the arguments sequence_lengths and drop_states.
Operator& AddStepInputs(Operator& op);

// Adds a problem unless a unit, or its gradient, has seq_lengths where the argument sequence_lengths says so.
void CheckArity(const OperatorCall& op, std::vector<NetProblem>* problems);

// Throws kTypeMismatch or kShapeMismatch unless the inputs fit together: states, gates, lengths (if any) and timestep.
ShapeCheck CheckGatedUnit(int num_states, int num_gates);

// `next` in the rows whose sequence has not ended; in others `before`, a state, or 0 with drop_states.
Expr KeptWhereEnded(Formula& f, std::string_view before, const Expr& next);

}  // namespace stepnet
