// Elu: y = x where x > 0, alpha * (e^x - 1) elsewhere.
// Source: Clevert, Unterthiner, Hochreiter, "Exponential Linear Units", ICLR 2016, eq. 15.
// Selu: y = scale * Elu(x).
// Source: Klambauer, Unterthiner, Mayr, Hochreiter, "Self-Normalizing Neural Networks", NIPS 2017, eq. 2.
//
// e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which keeps its digits near 0. Where x is above 0, t is that of 0: a
// sum takes the place of a choice.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

Expr Elu(Formula& f, double scale) {
  const Expr x = f.In("x");
  const Expr t = Tanh(0.5 * Min(0, x));
  return scale * (Max(x, 0) + f.Number("alpha") * (2 * t / (1 - t)));
}

// Takes y, not x, so that the forward pass may overwrite x; a DerivativeOf would read x. Below 0, dy/dx = scale * alpha
// * e^x = y + scale * alpha.
Expr EluGradient(Formula& f, double scale) {
  const Expr y = f.In("y");
  return f.In("dy") * Where(y > 0, scale, y + Cast(y.dtype(), scale) * f.Number("alpha"));
}

const Registration elu = ActivationByOutput("Elu", "y = x where x > 0, alpha * (e^x - 1) elsewhere.")
                             .Arg("alpha", 1.0f, "y tends to -alpha as x falls", AtLeast(0))
                             .Formula([](Formula& f) { f.Out({Elu(f, 1)}); });

const Registration elu_gradient =
    GradientOf("Elu", "dx = dy where y > 0, dy * (y + alpha) elsewhere.").Formula([](Formula& f) {
      f.Out({EluGradient(f, 1)});
    });

// It stays a double: Arg would round it to a float.
ArgumentSpec SeluNumber(const char* name, double value, const char* doc) {
  return {
      .name = name, .type = ArgumentType::kFloat, .default_value = {.f = value}, .doc = doc, .constraint = AtLeast(0)};
}

const Registration selu = ActivationByOutput("Selu", "y = scale * x where x > 0, scale * alpha * (e^x - 1) elsewhere.")
                              .Args({SeluNumber("alpha", 1.6732632423543772848, "y tends to -scale * alpha as x falls"),
                                     SeluNumber("scale", 1.0507009873554804934, "slope above 0")})
                              .Formula([](Formula& f) { f.Out({Elu(f, f.Number("scale"))}); });

const Registration selu_gradient =
    GradientOf("Selu", "dx = scale * dy where y > 0, dy * (y + scale * alpha) elsewhere.").Formula([](Formula& f) {
      f.Out({EluGradient(f, f.Number("scale"))});
    });

}  // namespace
}  // namespace stepnet
