// Sums of gradients, in place.
#pragma once

#include "stepnet/core/tensor.h"

namespace stepnet {

// to += from, element by element. REQUIRES as many elements of one dtype, float or double. Throws kTypeMismatch for
// other dtypes.
void Accumulate(const TensorView& from, const TensorView& to);
// The same of tensors on one device.
void AddTensor(const Tensor& from, const Tensor& to);

// `to`, which is n times as long as `from`, becomes n times its elements, one behind the other. Throws kShapeMismatch
// where it is not.
void CopyToEach(const Tensor& from, const Tensor& to);
// to += each of the n parts of `from`, which is n times as long, in their order. Throws kShapeMismatch,
// and as Accumulate does.
void AddEach(const Tensor& from, const Tensor& to);

// All elements become 0, strings become empty.
void SetZero(const Tensor& tensor);

}  // namespace stepnet
