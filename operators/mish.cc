// Mish: y = x * tanh(log(1 + e^x)).
// Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// tanh(log(1 + e^x)), whose exponential does not overflow.
Expr TanhOfSoftplus(const Expr& x) { return Tanh(Max(x, 0) + Log1p(Exp(-Abs(x)))); }

const Registration mish = Operator("Mish")
                              .Doc("y = x * tanh(log(1 + e^x)), element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Gradient(GradientFromInput("MishGradient"))
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({x * TanhOfSoftplus(x)});
                              });

const Registration mish_gradient = Operator("MishGradient")
                                       .Doc("dx = dy * (t + x * (1 - t^2) * sigmoid(x)) with t = tanh(log(1 + e^x)).")
                                       .Input("x", "input of Mish, any shape")
                                       .Input("dy", "the shape of x")
                                       .Output("dx", "the shape of x")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Formula([](Formula& f) {
                                         const Expr x = f.In("x");
                                         const Expr t = TanhOfSoftplus(x);
                                         f.Out({f.In("dy") * (t + x * (1 - t * t) * Sigmoid(x))});
                                       });

}  // namespace
}  // namespace stepnet
