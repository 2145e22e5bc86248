// Kernels of the GPU for operators that say what they compute: by a formula (core/formulas/formula.h) or by what they
// are made of (core/expansion.h). Products go to cuBLASLt; all else is printed as CUDA C++ and compiled when it is
// first met.
#pragma once

#include <string>

#include "stepnet/core/operator.h"

namespace stepnet {

// A kernel of the library's own (gpu/cuda/kernels), as a variable at namespace scope: for a type that says neither, for
// inputs about which it says nothing, or, where it stops after faults, for all. It belongs to the device as what
// follows from formulas does. Others register theirs with the type: KernelRegistration.
class LibraryKernel {
 public:
  LibraryKernel(std::string type, Kernel kernel);
};

// Null for a type that says neither and has no kernel here. The same each time.
const Kernel* FindOperatorKernel(const OperatorSchema& schema);

}  // namespace stepnet
