// What operators of training share: the learning rate and the iteration number, which reach them as tensors.
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

// Shape rules call it: throws kTypeMismatch or kShapeMismatch unless input i is one float or double.
void ExpectRate(const ShapeQuery& query, int i);
// The rate of one run.
double RateOf(const TensorView& rate);

// Shape rules call it: throws kTypeMismatch or kShapeMismatch unless input i is one int64.
void ExpectIteration(const ShapeQuery& query, int i);
// The iteration number of one run. One below 0 is a fault of the run. No optional: it is written in parts and read as a
// whole, which short kernels wait for longer than they compute.
std::int64_t IterationOf(const OpRun& run, int input, const std::string& name);

}  // namespace stepnet
