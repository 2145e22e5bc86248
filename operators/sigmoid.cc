// Sigmoid: y = 1 / (1 + exp(-x)).
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration sigmoid = Operator("Sigmoid")
                                 .Doc("Logistic function: y = 1 / (1 + exp(-x)), element by element.")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Shapes(SameFloats())
                                 .InPlace({{0, 0}})
                                 .Gradient("SigmoidGradient", {"y", "dy"}, {"dx"})
                                 .Formula([](Formula& f) { f.Out({Sigmoid(f.In("x"))}); });

// Takes y, not x, so that the forward pass may overwrite x.
const Registration sigmoid_gradient = Operator("SigmoidGradient")
                                          .Doc("dx = dy y (1 - y).")
                                          .Input("y", "output of Sigmoid, any shape")
                                          .Input("dy", "the shape of y")
                                          .Output("dx", "the shape of y")
                                          .Shapes(SameFloats())
                                          .InPlace({{1, 0}})
                                          .Formula(DerivativeOf("Sigmoid"));

}  // namespace
}  // namespace stepnet
