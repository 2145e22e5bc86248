// Kernels written for float and double.
#pragma once

#include <string>
#include <utility>

#include "stepnet/core/operator.h"

namespace stepnet {

// Calls `fn` with a value of the C++ type of `dtype`, float or double, whose value says nothing. Throws kTypeMismatch,
// naming the operator, for other dtypes, which its shape rule has let pass.
template <typename Fn>
void ForFloatType(DType dtype, const std::string& op, Fn&& fn) {
  if (dtype == DType::kFloat) {
    fn(float{});
  } else if (dtype == DType::kDouble) {
    fn(double{});
  } else {
    throw Error(ErrorCode::kTypeMismatch, StrCat(op, " has no kernel for ", dtype));
  }
}

// Kernel that calls fn.operator()<T>(run), where T, float or double, is the type of output 0:
//   FloatKernel(op, [scale = op.Float("scale")]<typename T>(const OpRun& run) { … })
template <typename Fn>
RunFn FloatKernel(const OperatorCall& op, Fn fn) {
  return [fn = std::move(fn), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) { fn.template operator()<decltype(zero)>(run); });
  };
}

}  // namespace stepnet
