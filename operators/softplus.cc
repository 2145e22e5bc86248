// Softplus: y = log(1 + e^x) = max(x, 0) + log(1 + e), with e = e^-|x|, which does not overflow.
// With u = 1 + e as rounded, log(1 + e) = log(u) + (e - (u - 1)) / u keeps the digits of a small e.
#include <algorithm>
#include <cmath>

#include "stepnet/operators/map_through.h"

namespace stepnet {
namespace {

template <typename T>
void Softplus(const T* x, T* y, std::int64_t n) {
  constexpr std::int64_t kBlock = 512;
  T e[kBlock];
  T log[kBlock];
  for (std::int64_t begin = 0; begin < n; begin += kBlock, x += kBlock, y += kBlock) {
    const std::int64_t size = std::min(kBlock, n - begin);
    for (std::int64_t i = 0; i < size; ++i) e[i] = -std::abs(x[i]);
    VectorExp(e, e, size);
    for (std::int64_t i = 0; i < size; ++i) log[i] = 1 + e[i];
    VectorLog(log, log, size);
    STEPNET_ANY_ORDER
    for (std::int64_t i = 0; i < size; ++i) {
      const T u = 1 + e[i];
      y[i] = (x[i] > 0 ? x[i] : 0) + (log[i] + (e[i] - (u - 1)) / u);
    }
  }
}

const Registration softplus = Operator("Softplus")
                                  .Doc("y = log(1 + e^x), element by element.")
                                  .Input("x", "any shape")
                                  .Output("y", "the shape of x")
                                  .Shapes(SameFloats())
                                  .InPlace({{0, 0}})
                                  .Elementwise()
                                  .Gradient("SoftplusGradient", {"y", "dy"}, {"dx"})
                                  .Cpu([](const OperatorCall& op) -> RunFn {
                                    return [type = op.type()](const OpRun& run) {
                                      ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
                                        using T = decltype(zero);
                                        Softplus(run.In(0).As<T>(), run.Out(0).As<T>(), run.Out(0).size());
                                      });
                                    };
                                  });

// 1 - e^-y = 2 t / (1 + t) with t = tanh(y / 2), which keeps the digits of a small y.
const Registration softplus_gradient =
    Operator("SoftplusGradient")
        .Doc("dx = dy * (1 - e^-y), which is dy * sigmoid(x).")
        .Input("y", "output of Softplus, any shape")
        .Input("dy", "the shape of y")
        .Output("dx", "the shape of y")
        .Shapes(SameFloats())
        .InPlace({{0, 0}, {1, 0}})
        .Elementwise()
        .Cpu([](const OperatorCall& op) {
          return MapThrough(
              op, [](auto y) { return y / 2; }, kTanh, [](auto, auto dy, auto t) { return dy * (2 * t / (1 + t)); });
        });

}  // namespace
}  // namespace stepnet
