// Mish: y = x * tanh(log(1 + e^x)).
// Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

// tanh(log(1 + e^x)), whose exponential does not overflow.
Expr TanhOfSoftplus(const Expr& x) { return Tanh(Max(x, 0) + Log1p(Exp(-Abs(x)))); }

const Registration mish = Activation("Mish", "y = x * tanh(log(1 + e^x)), element by element.").Formula([](Formula& f) {
  const Expr x = f.In("x");
  f.Out({x * TanhOfSoftplus(x)});
});

// By hand, as the derivative of max and log(1 + e^x) is the sigmoid, which the rules do not see: theirs has the same
// error and takes 1.07 times as long for 64 elements, 1.03 for 4,096 and 1.02 for 1,048,576.
const Registration mish_gradient =
    GradientOf("Mish", "dx = dy * (t + x * (1 - t^2) * sigmoid(x)) with t = tanh(log(1 + e^x)).")
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          const Expr t = TanhOfSoftplus(x);
          f.Out({f.In("dy") * (t + x * (1 - t * t) * Sigmoid(x))});
        });

}  // namespace
}  // namespace stepnet
