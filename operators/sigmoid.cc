// Sigmoid: y = 1 / (1 + exp(-x)).
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration sigmoid = Operator("Sigmoid")
                                 .Doc("Logistic function: y = 1 / (1 + exp(-x)), element by element.")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Shapes(SameFloats())
                                 .InPlace({{0, 0}})
                                 .Elementwise()
                                 .Gradient("SigmoidGradient", {"y", "dy"}, {"dx"})
                                 .Cpu([](const OperatorCall& op) -> RunFn {
                                   return [type = op.type()](const OpRun& run) {
                                     ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
                                       using T = decltype(zero);
                                       VectorSigmoid(run.In(0).As<T>(), run.Out(0).As<T>(), run.Out(0).size());
                                     });
                                   };
                                 });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration sigmoid_gradient =
    Operator("SigmoidGradient")
        .Doc("dx = dy y (1 - y).")
        .Input("y", "output of Sigmoid, any shape")
        .Input("dy", "the shape of y")
        .Output("dx", "the shape of y")
        .Shapes(SameFloats())
        .InPlace({{1, 0}})
        .Elementwise()
        .Cpu([](const OperatorCall& op) { return Map(op, [](auto y, auto dy) { return dy * y * (1 - y); }); });

}  // namespace
}  // namespace stepnet
