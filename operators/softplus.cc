// Softplus: y = log(1 + e^x) = max(x, 0) + log(1 + e), with e = e^-|x|, which does not overflow.
// With u = 1 + e as rounded, log(1 + e) = log(u) + (e - (u - 1)) / u keeps the digits of a small e.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration softplus =
    ActivationByOutput("Softplus", "y = log(1 + e^x), element by element.").Formula([](Formula& f) {
      const Expr x = f.In("x");
      const Expr e = Exp(-Abs(x));
      const Expr u = 1 + e;
      f.Out({Max(x, 0) + (Log(u) + (e - (u - 1)) / u)});
    });
// By hand, because a derivative would read x, which need not be kept. 1 - e^-y = 2 t / (1 + t) with t = tanh(y / 2),
// which keeps the digits of a small y.
const Registration softplus_gradient =
    GradientOf("Softplus", "dx = dy * (1 - e^-y), which is dy * sigmoid(x).").Formula([](Formula& f) {
      const Expr t = Tanh(0.5 * f.In("y"));
      f.Out({f.In("dy") * (2 * t / (1 + t))});
    });

}  // namespace
}  // namespace stepnet
