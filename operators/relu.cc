// Relu: y = max(x, 0).
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration relu = Operator("Relu")
                              .Doc("Rectified linear unit: y = max(x, 0), element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Gradient("ReluGradient", {"y", "dy"}, {"dx"})
                              .Formula([](Formula& f) { f.Out({Max(f.In("x"), 0)}); });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration relu_gradient = Operator("ReluGradient")
                                       .Doc("dx = dy where y > 0, 0 elsewhere.")
                                       .Input("y", "output of Relu, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Shapes(SameFloats())
                                       .InPlace({{1, 0}})
                                       .Formula(DerivativeOf("Relu"));

}  // namespace
}  // namespace stepnet
