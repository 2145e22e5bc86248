// Tanh: y = tanh(x).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration tanh =
    ActivationByOutput("Tanh", "Hyperbolic tangent, element by element.", "dx = dy (1 - y^2).").Formula([](Formula& f) {
      f.Out({Tanh(f.In("x"))});
    });

}  // namespace
}  // namespace stepnet
