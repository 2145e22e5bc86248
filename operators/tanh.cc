// Tanh: y = tanh(x).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration tanh = ActivationByOutput("Tanh", "Hyperbolic tangent, element by element.").Formula([](Formula& f) {
  f.Out({Tanh(f.In("x"))});
});
const Registration tanh_gradient = ActivationDerivativeByOutput("Tanh", "dx = dy (1 - y^2).");

}  // namespace
}  // namespace stepnet
