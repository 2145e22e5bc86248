// Softsign: y = x / (1 + |x|).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration softsign = Activation("Softsign", "y = x / (1 + |x|), element by element.").Formula([](Formula& f) {
  const Expr x = f.In("x");
  f.Out({x / (1 + Abs(x))});
});
// By hand: the derivative of the quotient takes twice as many operations.
const Registration softsign_gradient = GradientOf("Softsign", "dx = dy / (1 + |x|)^2.").Formula([](Formula& f) {
  const Expr root = 1 + Abs(f.In("x"));
  f.Out({f.In("dy") / (root * root)});
});

}  // namespace
}  // namespace stepnet
