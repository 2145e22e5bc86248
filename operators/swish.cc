// Swish, Silu: y = x * sigmoid(x).
// Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017, with beta = 1.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration swish = Operator("Swish")
                               .Doc("y = x * sigmoid(x), element by element.")
                               .Input("x", "any shape")
                               .Output("y", "the shape of x")
                               .Shapes(SameFloats())
                               .Gradient("SwishGradient", {"x", "y", "dy"}, {"dx"})
                               .Formula([](Formula& f) {
                                 const Expr x = f.In("x");
                                 f.Out({x * Sigmoid(x)});
                               });

const Registration swish_gradient = Operator("SwishGradient")
                                        .Doc("dx = dy * (y + sigmoid(x) * (1 - y)).")
                                        .Input("x", "input of Swish, any shape")
                                        .Input("y", "output of Swish, the shape of x")
                                        .Input("dy", "the shape of x")
                                        .Output("dx", "the shape of x")
                                        .Shapes(SameFloats())
                                        .InPlace({{0, 0}, {1, 0}, {2, 0}})
                                        .Formula([](Formula& f) {
                                          const Expr y = f.In("y");
                                          f.Out({f.In("dy") * (y + Sigmoid(f.In("x")) * (1 - y))});
                                        });

// The name that others have for it. Its gradient takes x alone, so that y need not be kept.
const Registration silu = Operator("Silu")
                              .Doc("y = x * sigmoid(x), element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Gradient(GradientFromInput("SiluGradient"))
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({x * Sigmoid(x)});
                              });

const Registration silu_gradient = Operator("SiluGradient")
                                       .Doc("dx = dy * (s + x * s * (1 - s)) with s = sigmoid(x).")
                                       .Input("x", "input of Silu, any shape")
                                       .Input("dy", "the shape of x")
                                       .Output("dx", "the shape of x")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Formula([](Formula& f) {
                                         const Expr x = f.In("x");
                                         const Expr s = Sigmoid(x);
                                         f.Out({f.In("dy") * (s + x * s * (1 - s))});
                                       });

}  // namespace
}  // namespace stepnet
