#include "stepnet/operators/elementwise.h"

#include "stepnet/operators/input_checks.h"

namespace stepnet {

ShapeRule SameFloats() {
  return [](const ShapeQuery& query) {
    const TensorInfo& first = query.In(0);
    ExpectFloat(query, 0);
    for (int i = 1; i < query.num_inputs(); ++i) {
      const TensorInfo& other = query.In(i);
      if (other == first) continue;
      throw WrongInputs(query, {0, i}, "needs inputs of one shape and type",
                        other.dtype == first.dtype ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch);
    }
    return std::vector<TensorInfo>{{.dtype = first.dtype, .shape = first.shape}};
  };
}

}  // namespace stepnet
