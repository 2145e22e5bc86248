// Kinds of dtypes whose values have a fraction.
#pragma once

#include "stepnet/core/tensor.h"

namespace stepnet {

// float and double: what operators compute in, and what gradients are of.
constexpr bool IsFloatOrDouble(DType dtype) { return dtype == DType::kFloat || dtype == DType::kDouble; }

// Types that values are only stored in: what computes with them does so in float.
constexpr bool IsStoredFloat(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// The dtype that values of another one, or of the same, are computed in.
constexpr DType ComputedIn(DType dtype) { return IsStoredFloat(dtype) ? DType::kFloat : dtype; }
// Bytes of a tensor in the dtype that is computed in: what is decided by them does not depend on how weights are
// stored, nor do the bits that follow.
inline std::int64_t ComputedBytes(const TensorInfo& info) {
  return info.shape.size() * DTypeBytes(ComputedIn(info.dtype));
}

// The values of float16 or bfloat16 as float, exactly, on the host; other tensors are returned as they are.
Tensor Widened(const Tensor& tensor);

constexpr bool IsFloating(DType dtype) { return IsFloatOrDouble(dtype) || IsStoredFloat(dtype); }

}  // namespace stepnet
