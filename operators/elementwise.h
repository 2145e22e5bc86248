// Kernels and shapes of operators on float or double.
#pragma once

#include <string>
#include <utility>

#include "stepnet/core/operator.h"

namespace stepnet {

// Calls `fn` with a value of the C++ type of `dtype`, float or double, whose value says nothing. Throws kTypeMismatch,
// naming the operator, for other dtypes.
template <typename Fn>
void ForFloatType(DType dtype, const std::string& op, Fn&& fn) {
  if (dtype == DType::kFloat) {
    fn(float{});
  } else if (dtype == DType::kDouble) {
    fn(double{});
  } else {
    throw Error(ErrorCode::kTypeMismatch, StrCat(op, " works on float and double, not on ", dtype));
  }
}

// Shape rule: all inputs are float or all are double, of one shape; one output of that dtype and shape.
ShapeRule SameFloats();

// Kernel that calls fn.operator()<T>(run), where T, float or double, is the type of output 0:
//   FloatKernel(op, [scale = op.Float("scale")]<typename T>(const OpRun& run) { … })
template <typename Fn>
RunFn FloatKernel(const OperatorCall& op, Fn fn) {
  return [fn = std::move(fn), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) { fn.template operator()<decltype(zero)>(run); });
  };
}

}  // namespace stepnet
