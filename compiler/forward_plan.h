// MakeForwardPlan: makes the plan of a RecurrentNetwork operator for given inputs.
#pragma once

#include <memory>

#include "stepnet/compiler/recurrent_plan.h"
#include "stepnet/nets/forward_operator.h"

namespace stepnet {

// `inputs` describes the operator's inputs; the number of steps, dimension 0 of sequences, does not matter. Throws what
// MakeStepPlan throws, and kShapeMismatch for initial states that do not fit the batch.
std::shared_ptr<const ForwardPlan> MakeForwardPlan(const ForwardOperator& forward,
                                                   const std::vector<TensorInfo>& inputs);

// How many rows a state starts with, by the shape of its initial value: L of [L, B, …], 1 of [D] and [B, D].
std::int64_t NumInitialRows(const Shape& initial);

// The layout of a state from its initial value: [D] (the same for every row of the batch), [B, D], or [L, B, …]; a
// batch of 1 is repeated. Throws kShapeMismatch.
StateLayout LayoutOf(const RecurrentState& state, const OperatorCall& op, const std::vector<TensorInfo>& inputs);

}  // namespace stepnet
