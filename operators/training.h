// What operators of training share: the learning rate and the iteration number, which reach them as tensors.
#pragma once

#include <optional>

#include "stepnet/core/operator.h"

namespace stepnet {

// Shape rules call it: throws kTypeMismatch or kShapeMismatch unless input i is one float or double.
void ExpectRate(const ShapeQuery& query, int i);
// The rate of one run.
double RateOf(const TensorView& rate);

// Shape rules call it: throws kTypeMismatch or kShapeMismatch unless input i is one int64.
void ExpectIteration(const ShapeQuery& query, int i);
// The iteration number of one run. Nothing where it is negative, which is a fault of the run.
std::optional<std::int64_t> IterationOf(const OpRun& run, int input, const std::string& name);

}  // namespace stepnet
