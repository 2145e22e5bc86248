// Silu: y = x * sigmoid(x), as PyTorch and ONNX tools call it.
// Source: Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
// Reinforcement Learning", 2017, eq. 5 and 6.
// Swish: the same, as Caffe2 calls it.
// Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017, with beta = 1.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

void XTimesSigmoid(Formula& f) {
  const Expr x = f.In("x");
  f.Out({x * Sigmoid(x)});
}

const Registration silu = Activation("Silu", "y = x / (1 + e^-x), element by element.",
                                     "dx = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + e^-x).")
                              .Formula(XTimesSigmoid);

const Registration swish = Operator("Swish")
                               .Doc("y = x * sigmoid(x), element by element.")
                               .Input("x", OfFloats("any shape"))
                               .Output("y", Like("x"))
                               .Gradient("SwishGradient", {"x", "y", "dy"}, {"dx"})
                               .Formula(XTimesSigmoid);

// By hand: it takes y in place of x * sigmoid(x), as Caffe2 does. Its y + s * (1 - y) is the same, but for large x,
// where 1 - y rounds to -y, gives 0 in place of 1.
const Registration swish_gradient = GradientOf("Swish", "dx = dy * (s + y * (1 - s)) with s = sigmoid(x).")
                                        .InPlace({{0, 0}, {1, 0}, {2, 0}})
                                        .Formula([](Formula& f) {
                                          const Expr s = Sigmoid(f.In("x"));
                                          f.Out({f.In("dy") * MulAdd(f.In("y"), 1 - s, s)});
                                        });

}  // namespace
}  // namespace stepnet
