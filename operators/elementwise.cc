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
      throw Error(other.dtype == first.dtype ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
                  StrCat(query.op().type(), " needs inputs of one shape and type; ", InputText(query, 0), " and ",
                         InputText(query, i)));
    }
    return std::vector<TensorInfo>{{.dtype = first.dtype, .shape = first.shape}};
  };
}

}  // namespace stepnet
