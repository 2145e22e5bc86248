#include "stepnet/operators/elementwise.h"

namespace stepnet {

ShapeRule SameFloats() {
  return [](const ShapeQuery& query) {
    const TensorInfo& first = query.In(0);
    if (first.dtype != DType::kFloat && first.dtype != DType::kDouble) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(query.op().type(), " works on float and double; ",
                                                   query.op().inputs()[0], " is ", first.Description()));
    }
    for (int i = 1; i < query.num_inputs(); ++i) {
      const TensorInfo& other = query.In(i);
      if (other == first) continue;
      throw Error(other.dtype == first.dtype ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
                  StrCat(query.op().type(), " needs inputs of one shape and type; ", query.op().inputs()[0], " is ",
                         first.Description(), " and ", query.op().inputs()[i], " is ", other.Description()));
    }
    return std::vector<TensorInfo>{{.dtype = first.dtype, .shape = first.shape}};
  };
}

}  // namespace stepnet
