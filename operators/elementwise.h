// Kernels of operators on float or double: FloatKernel, and Map for those that work element by element.
#pragma once

#include <cstdint>
#include <utility>

#include "stepnet/core/any_order.h"
#include "stepnet/core/cancellation.h"
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

// Kernel that calls fn(x[i]) or fn(x[i], y[i]) for each element, where fn takes float or double (a generic lambda).
// The shape rule has seen to it that all inputs have the dtype and size of the output.
template <typename Fn>
RunFn Map(const OperatorCall& op, Fn fn) {
  return FloatKernel(op, [fn]<typename T>(const OpRun& run) {
    T* out = run.Out(0).As<T>();
    const T* x = run.In(0).As<T>();
    InBlocks(run.Out(0).size(), 1, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (requires { fn(T{}, T{}); }) {
        const T* y = run.In(1).As<T>();
        STEPNET_ANY_ORDER
        for (std::int64_t i = begin; i < end; ++i) out[i] = fn(x[i], y[i]);
      } else {
        STEPNET_ANY_ORDER
        for (std::int64_t i = begin; i < end; ++i) out[i] = fn(x[i]);
      }
    });
  });
}

}  // namespace stepnet
