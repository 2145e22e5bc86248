// Tanh: y = tanh(x).
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration tanh = Operator("Tanh")
                              .Doc("Hyperbolic tangent, element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Elementwise()
                              .Gradient("TanhGradient", {"y", "dy"}, {"dx"})
                              .Cpu([](const OperatorCall& op) -> RunFn {
                                return [type = op.type()](const OpRun& run) {
                                  ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
                                    using T = decltype(zero);
                                    VectorTanh(run.In(0).As<T>(), run.Out(0).As<T>(), run.Out(0).size());
                                  });
                                };
                              });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration tanh_gradient =
    Operator("TanhGradient")
        .Doc("dx = dy (1 - y^2).")
        .Input("y", "output of Tanh, any shape")
        .Input("dy", "the shape of y")
        .Output("dx", "the shape of y")
        .Shapes(SameFloats())
        .InPlace({{1, 0}})
        .Elementwise()
        .Cpu([](const OperatorCall& op) { return Map(op, [](auto y, auto dy) { return dy * (1 - y * y); }); });

}  // namespace
}  // namespace stepnet
