// Kernels of the GPU for operators that say what they compute: by a formula (core/formula.h) or by what they are made
// of (core/expansion.h). Products go to cuBLASLt; all else is printed as CUDA C++ and compiled when it is first met.
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

// Null for a type that says neither. The same each time.
const Kernel* FindOperatorKernel(const OperatorSchema& schema);

}  // namespace stepnet
