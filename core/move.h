// Kernels that move bytes and compute nothing but sums: the same on every device.
#pragma once

#include "stepnet/core/operator.h"

namespace stepnet {

// Output 0 becomes input 0, which has as many elements of its dtype.
void CopyInput(const OpRun& run);
// Input 0 is added to output 0. Both are float, or double.
void AddInput(const OpRun& run);

// CopyInput as the kernel of an operator.
Kernel CopyKernel();

}  // namespace stepnet
