// ForFloats: code of kernels by the type that they compute in.
#pragma once

#include "stepnet/core/tensor.h"

namespace stepnet {

// Calls fn with a 0 of the C++ type of `dtype`, which is float or double.
template <typename Fn>
void ForFloats(DType dtype, const Fn& fn) {
  dtype == DType::kDouble ? fn(double{}) : fn(float{});
}

}  // namespace stepnet
