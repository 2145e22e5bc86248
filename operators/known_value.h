// Values that a shape rule knows before anything runs, and passes on in TensorInfo::value.
//
// Sizes computed from shapes (the output of Shape, the split_info of Concat, the old_shape of Reshape) decide about the
// shapes of operators that follow. Where they are known from shapes alone, whole nets can be laid out in advance.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/size_values.h"

namespace stepnet {

// A 1-D int32 or int64 tensor with these elements, its value known. Throws kShapeMismatch when a value does not fit.
TensorInfo KnownInts(DType dtype, const std::vector<std::int64_t>& values);

// True when input i is a small tensor whose value is known.
bool HasKnownValue(const ShapeQuery& query, int i);

}  // namespace stepnet
