// Silu: y = x * sigmoid(x), the name that PyTorch and ONNX tools know Swish by.
// Source: Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
// Reinforcement Learning", 2017, eq. 5 and 6.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration silu = Operator("Silu")
                              .Doc("y = x / (1 + e^-x), element by element.")
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
                                       .Doc("dx = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + e^-x).")
                                       .Input("x", "input of Silu, any shape")
                                       .Input("dy", "the shape of x")
                                       .Output("dx", "the shape of x")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Formula([](Formula& f) {
                                         const Expr x = f.In("x"), s = Sigmoid(x);
                                         f.Out({f.In("dy") * (s * (1 + x * (1 - s)))});
                                       });

}  // namespace
}  // namespace stepnet
