// Kinds of dtypes whose values have a fraction.
#pragma once

#include "stepnet/core/tensor.h"

namespace stepnet {

// float and double: what operators compute in, and what gradients are of.
constexpr bool IsFloatOrDouble(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

// These, and types that values are only stored in.
constexpr bool IsFloating(DType dtype) {
  return IsFloatOrDouble(dtype) || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace stepnet
