// Silu: y = x * sigmoid(x), the name that PyTorch and ONNX tools know Swish by.
// Source: Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
// Reinforcement Learning", 2017, eq. 5 and 6.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration silu = Activation("Silu", "y = x / (1 + e^-x), element by element.",
                                     "dx = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + e^-x).")
                              .Formula([](Formula& f) {
                                const Expr x = f.In("x");
                                f.Out({x * Sigmoid(x)});
                              });

}  // namespace
}  // namespace stepnet
