// Relu: y = max(x, 0).
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration relu =
    Operator("Relu")
        .Doc("Rectified linear unit: y = max(x, 0), element by element.")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Shapes(SameFloats())
        .InPlace({{0, 0}})
        .Elementwise()
        .Gradient("ReluGradient", {"y", "dy"}, {"dx"})
        .Cpu([](const OperatorCall& op) { return Map(op, [](auto x) { return x <= 0 ? decltype(x){0} : x; }); });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration relu_gradient = Operator("ReluGradient")
                                       .Doc("dx = dy where y > 0, 0 elsewhere.")
                                       .Input("y", "output of Relu, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Shapes(SameFloats())
                                       .InPlace({{1, 0}})
                                       .Elementwise()
                                       .Cpu([](const OperatorCall& op) {
                                         return Map(op, [](auto y, auto dy) { return y > 0 ? dy : decltype(dy){0}; });
                                       });

}  // namespace
}  // namespace stepnet
