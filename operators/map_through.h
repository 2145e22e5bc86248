// MapThrough: kernels of operators that work element by element and go through one function of vector_math.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {

// Kernel of out = after(x, …, f(before(x))), where x, … are the elements of the inputs and `f` is given as a function
// of arrays, `[](const auto* in, auto* out, std::int64_t n) { VectorTanh(in, out, n); }`. All three are generic
// lambdas. The shape rule has seen to it that all inputs have the dtype and size of the output.
template <typename Before, typename F, typename After>
RunFn MapThrough(const OperatorCall& op, Before before, F f, After after) {
  return [=, type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      constexpr std::int64_t kBlock = 512;  // in the first-level cache, and on the stack
      T through[kBlock];
      for (std::int64_t begin = 0; begin < run.Out(0).size(); begin += kBlock) {
        const std::int64_t n = std::min(kBlock, run.Out(0).size() - begin);
        CountWork(n);
        const auto input = [&](int i) { return run.In(i).As<T>() + begin; };
        T* out = run.Out(0).As<T>() + begin;
        const T* x = input(0);
        for (std::int64_t i = 0; i < n; ++i) through[i] = before(x[i]);
        f(static_cast<const T*>(through), static_cast<T*>(through), n);
        if constexpr (requires { after(zero, zero); }) {
          STEPNET_ANY_ORDER
          for (std::int64_t i = 0; i < n; ++i) out[i] = after(x[i], through[i]);
        } else if constexpr (requires { after(zero, zero, zero); }) {
          const T* y = input(1);
          STEPNET_ANY_ORDER
          for (std::int64_t i = 0; i < n; ++i) out[i] = after(x[i], y[i], through[i]);
        } else {
          const T* y = input(1);
          const T* z = input(2);
          STEPNET_ANY_ORDER
          for (std::int64_t i = 0; i < n; ++i) out[i] = after(x[i], y[i], z[i], through[i]);
        }
      }
    });
  };
}

inline constexpr auto kTanh = [](const auto* in, auto* out, std::int64_t n) { VectorTanh(in, out, n); };
inline constexpr auto kSigmoid = [](const auto* in, auto* out, std::int64_t n) { VectorSigmoid(in, out, n); };

}  // namespace stepnet
