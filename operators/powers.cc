// Sqr: y = x^2. Sqrt: y = x^(1/2). Rsqrt: y = x^(-1/2). Reciprocal: y = 1 / x. Pow: y = x^exponent.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

// Declares an operator of one input that works in place.
Operator PowerOperator(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc).Input("x", "any shape").Output("y", "the shape of x").Shapes(SameFloats()).InPlace({{0, 0}});
  return op;
}

// Declares the operator that computes dx from y and dy, so that x need not be kept.
Operator GradientOfPower(const std::string& type, const std::string& doc) {
  Operator op(type + "Gradient");
  op.Doc(doc)
      .Input("y", "output of " + type + ", any shape")
      .Input("dy", "the shape of y")
      .Output("dx", "the shape of y")
      .Shapes(SameFloats())
      .InPlace({{0, 0}, {1, 0}});
  return op;
}

ArgumentValue Factor(float value) {
  ArgumentValue factor;
  factor.f = value;
  return factor;
}

const Registration sqr =
    PowerOperator("Sqr", "y = x * x, element by element.")
        .Gradient([](GradientBuilder& g) {
          ExpectInputsKept(g);
          const std::string doubled = g.I(0) + "_grad_doubled";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {doubled}, .arguments = {{"scale", Factor(2)}}});
          g.Add({.type = "Mul", .inputs = {doubled, g.I(0)}, .outputs = {g.GI(0)}});
        })
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          f.Out({x * x});
        });

const Registration sqrt =
    PowerOperator("Sqrt", "The square root, element by element; NaN below 0.")
        .Gradient([](GradientBuilder& g) {
          const std::string halved = g.I(0) + "_grad_halved";
          g.Add({.type = "Scale", .inputs = {g.GO(0)}, .outputs = {halved}, .arguments = {{"scale", Factor(0.5f)}}});
          g.Add({.type = "Div", .inputs = {halved, g.O(0)}, .outputs = {g.GI(0)}});
        })
        .Formula([](Formula& f) { f.Out({Sqrt(f.In("x"))}); });

const Registration rsqrt = PowerOperator("Rsqrt", "y = 1 / sqrt(x), element by element.")
                               .Gradient("RsqrtGradient", {"y", "dy"}, {"dx"})
                               .Formula([](Formula& f) { f.Out({1 / Sqrt(f.In("x"))}); });

const Registration rsqrt_gradient = GradientOfPower("Rsqrt", "dx = -dy * y^3 / 2.").Formula(DerivativeOf("Rsqrt"));

const Registration reciprocal = PowerOperator("Reciprocal", "y = 1 / x, element by element.")
                                    .Gradient("ReciprocalGradient", {"y", "dy"}, {"dx"})
                                    .Formula([](Formula& f) { f.Out({1 / f.In("x")}); });

const Registration reciprocal_gradient =
    GradientOfPower("Reciprocal", "dx = -dy * y^2.").Formula(DerivativeOf("Reciprocal"));

// The powers that cells use need no std::pow.
Expr Power(const Expr& x, float exponent) {
  if (exponent == 0) return Cast(x.dtype(), 1);
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == -1) return 1 / x;
  return Pow(x, exponent);
}

const Registration pow = PowerOperator("Pow", "y = x^exponent, element by element.")
                             .RequiredArg("exponent", ArgumentType::kFloat, "the power that x is raised to")
                             .Gradient(GradientFromInput("PowGradient"))
                             .Formula([](Formula& f) { f.Out({Power(f.In("x"), f.op().Float("exponent"))}); });

// No DerivativeOf: that of x * x * x rounds at each product, and that of 1 / x reads y; this form rounds three times
// for every exponent.
const Registration pow_gradient = Operator("PowGradient")
                                      .Doc("dx = dy * exponent * x^(exponent - 1), and 0 where exponent is 0.")
                                      .Input("x", "input of Pow, any shape")
                                      .Input("dy", "the shape of x")
                                      .Output("dx", "the shape of x")
                                      .RequiredArg("exponent", ArgumentType::kFloat, "as in Pow")
                                      .Shapes(SameFloats())
                                      .InPlace({{0, 0}, {1, 0}})
                                      .Formula([](Formula& f) {
                                        const float exponent = f.op().Float("exponent");
                                        if (exponent == 0) return f.Out({Expr(0)});
                                        f.Out({f.In("dy") * (exponent * Power(f.In("x"), exponent - 1))});
                                      });

}  // namespace
}  // namespace stepnet
