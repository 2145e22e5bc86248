// Sigmoid: y = 1 / (1 + exp(-x)).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration sigmoid =
    ActivationByOutput("Sigmoid", "Logistic function: y = 1 / (1 + exp(-x)), element by element.", "dx = dy y (1 - y).")
        .Formula([](Formula& f) { f.Out({Sigmoid(f.In("x"))}); });

}  // namespace
}  // namespace stepnet
