// What runs of operators cost: estimates for tables and schedules.
#pragma once

#include <span>

#include "stepnet/core/operator.h"
#include "stepnet/core/target.h"

namespace stepnet {

// All that a run reads and writes, where it goes over each input and each output once: for cost rules.
double BytesMoved(const ShapeQuery& query, std::span<const TensorInfo> outputs);

// What one run of `op` costs: as its type declares, otherwise what it reads and writes.
Cost EstimateCost(const OperatorCall& op, std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs);

// Rough time of such a run on one core, for choices between ways of running; no promise.
double EstimateMicroseconds(const Cost& cost, const Target& target);

}  // namespace stepnet
