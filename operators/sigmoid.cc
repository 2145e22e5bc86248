// Sigmoid: y = 1 / (1 + exp(-x)).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration sigmoid =
    ActivationByOutput("Sigmoid", "Logistic function: y = 1 / (1 + exp(-x)), element by element.")
        .Formula([](Formula& f) { f.Out({Sigmoid(f.In("x"))}); });
const Registration sigmoid_gradient = ActivationDerivativeByOutput("Sigmoid", "dx = dy y (1 - y).");

}  // namespace
}  // namespace stepnet
