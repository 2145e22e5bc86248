#include "stepnet/operators/known_value.h"

#include <limits>

namespace stepnet {

TensorInfo KnownInts(DType dtype, const std::vector<std::int64_t>& values) {
  const Shape shape({static_cast<std::int64_t>(values.size())});
  if (dtype == DType::kInt64) {
    return {.dtype = dtype, .shape = shape, .value = Tensor::Of<std::int64_t>(shape, values)};
  }
  for (const std::int64_t value : values) {
    if (value > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("a size of ", value, " does not fit into int32"));
    }
  }
  const std::vector<std::int32_t> narrow(values.begin(), values.end());
  return {.dtype = dtype, .shape = shape, .value = Tensor::Of<std::int32_t>(shape, narrow)};
}

bool HasKnownValue(const ShapeQuery& query, int i) {
  return query.ValueKnown(i) && query.In(i).shape.size() <= kMaxKnownElements;
}

}  // namespace stepnet
