// Sin and Cos.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration sin = Activation("Sin", "The sine of x radians, element by element.").Formula([](Formula& f) {
  f.Out({Sin(f.In("x"))});
});
const Registration sin_gradient = ActivationDerivative("Sin", "dx = dy * cos(x).");
const Registration cos = Activation("Cos", "The cosine of x radians, element by element.").Formula([](Formula& f) {
  f.Out({Cos(f.In("x"))});
});
const Registration cos_gradient = ActivationDerivative("Cos", "dx = -dy * sin(x).");

}  // namespace
}  // namespace stepnet
