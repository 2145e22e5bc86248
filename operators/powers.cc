// Sqr: y = x^2. Sqrt: y = x^(1/2). Rsqrt: y = x^(-1/2). Reciprocal: y = 1 / x. Pow: y = x^exponent.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration sqr =
    ElementFunction("Sqr", "y = x * x, element by element.")
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          const std::string doubled = g.I(0) + "_grad_doubled";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {doubled}, .arguments = {{"scale", {.f = 2.0f}}}});
          g.Add({.type = "Mul", .inputs = {doubled, g.I(0)}, .outputs = {g.GI(0)}});
        })
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          f.Out({x * x});
        });

const Registration sqrt =
    ElementFunction("Sqrt", "The square root, element by element; NaN below 0.")
        .Gradient([](GradientBuilder& g) {
          const std::string halved = g.I(0) + "_grad_halved";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {halved}, .arguments = {{"scale", {.f = 0.5f}}}});
          g.Add({.type = "Div", .inputs = {halved, g.O(0)}, .outputs = {g.GI(0)}});
        })
        .Formula([](Formula& f) { f.Out({Sqrt(f.In("x"))}); });

const Registration rsqrt =
    ActivationByOutput("Rsqrt", "y = 1 / sqrt(x), element by element.", "dx = -dy * y^3 / 2.").Formula([](Formula& f) {
      f.Out({1 / Sqrt(f.In("x"))});
    });

const Registration reciprocal =
    ActivationByOutput("Reciprocal", "y = 1 / x, element by element.", "dx = -dy * y^2.").Formula([](Formula& f) {
      f.Out({1 / f.In("x")});
    });

// The powers that cells use need no std::pow.
Expr Power(const Expr& x, double exponent) {
  if (exponent == 0) return Cast(x.dtype(), 1);
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == -1) return 1 / x;
  return Pow(x, exponent);
}

const Registration pow = Activation("Pow", "y = x^exponent, element by element.")
                             .RequiredArg("exponent", ArgumentType::kFloat,
                                          "the power that x is raised to; Power takes exponents as an input")
                             .Formula([](Formula& f) { f.Out({Power(f.In("x"), f.Number("exponent"))}); });

// No DerivativeOf: that of x * x * x rounds at each product, and that of 1 / x reads y; this form rounds three times
// for every exponent.
const Registration pow_gradient =
    GradientOf("Pow", "dx = dy * exponent * x^(exponent - 1), and 0 where exponent is 0.").Formula([](Formula& f) {
      const double exponent = f.Number("exponent");
      if (exponent == 0) return f.Out({Expr(0)});
      f.Out({f.In("dy") * (exponent * Power(f.In("x"), exponent - 1))});
    });

}  // namespace
}  // namespace stepnet
