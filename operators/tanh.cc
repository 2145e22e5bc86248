// Tanh: y = tanh(x).
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration tanh = Operator("Tanh")
                              .Doc("Hyperbolic tangent, element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Gradient("TanhGradient", {"y", "dy"}, {"dx"})
                              .Formula([](Formula& f) { f.Out({Tanh(f.In("x"))}); });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration tanh_gradient = Operator("TanhGradient")
                                       .Doc("dx = dy (1 - y^2).")
                                       .Input("y", "output of Tanh, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Shapes(SameFloats())
                                       .InPlace({{1, 0}})
                                       .Formula(DerivativeOf("Tanh"));

}  // namespace
}  // namespace stepnet
