// Gelu: y = x * P(X <= x) for a standard normal X. Erf, which says what that is.
// Source: Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
#include <numbers>

#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

constexpr double kRootOfHalf = std::numbers::sqrt2 / 2;

// P(X <= x).
Expr Normal(const Expr& x) { return 0.5 * (1 + Erf(kRootOfHalf * x)); }

const Registration gelu = Operator("Gelu")
                              .Doc("y = x * (1 + erf(x / sqrt(2))) / 2, element by element.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Gradient(GradientFromInput("GeluGradient"))
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({x * Normal(x)});
                              });

const Registration gelu_gradient = Operator("GeluGradient")
                                       .Doc("dx = dy * ((1 + erf(x / sqrt(2))) / 2 + x * e^(-x^2 / 2) / sqrt(2 pi)).")
                                       .Input("x", "input of Gelu, any shape")
                                       .Input("dy", "the shape of x")
                                       .Output("dx", "the shape of x")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Formula([](Formula& f) {
                                         const Expr x = f.In("x");
                                         const Expr density =
                                             kRootOfHalf * std::numbers::inv_sqrtpi * Exp(-0.5 * (x * x));
                                         f.Out({f.In("dy") * (Normal(x) + x * density)});
                                       });

const Registration erf = Operator("Erf")
                             .Doc("The error function, element by element.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Gradient(GradientFromInput("ErfGradient"))
                             .Formula([](Formula& f) { f.Out({Erf(f.In("x"))}); });

const Registration erf_gradient = Operator("ErfGradient")
                                      .Doc("dx = dy * 2 / sqrt(pi) * e^(-x^2).")
                                      .Input("x", "input of Erf, any shape")
                                      .Input("dy", "the shape of x")
                                      .Output("dx", "the shape of x")
                                      .Shapes(SameFloats())
                                      .InPlace({{0, 0}, {1, 0}})
                                      .Formula([](Formula& f) {
                                        const Expr x = f.In("x");
                                        f.Out({f.In("dy") * (2 * std::numbers::inv_sqrtpi * Exp(-(x * x)))});
                                      });

}  // namespace
}  // namespace stepnet
