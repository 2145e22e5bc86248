// Softsign: y = x / (1 + |x|).

#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration softsign = Operator("Softsign")
                                  .Doc("y = x / (1 + |x|), element by element.")
                                  .Input("x", "any shape")
                                  .Output("y", "the shape of x")
                                  .Shapes(SameFloats())
                                  .InPlace({{0, 0}})
                                  .Gradient(GradientFromInput("SoftsignGradient"))
                                  .Formula([](Formula& f) {
                                    const Expr x = f.In("x");
                                    f.Out({x / (1 + Abs(x))});
                                  });

// By hand: the derivative of the quotient takes twice as many operations.
const Registration softsign_gradient = Operator("SoftsignGradient")
                                           .Doc("dx = dy / (1 + |x|)^2.")
                                           .Input("x", "input of Softsign, any shape")
                                           .Input("dy", "the shape of x")
                                           .Output("dx", "the shape of x")
                                           .Shapes(SameFloats())
                                           .InPlace({{0, 0}, {1, 0}})
                                           .Formula([](Formula& f) {
                                             const Expr root = 1 + Abs(f.In("x"));
                                             f.Out({f.In("dy") / (root * root)});
                                           });

}  // namespace
}  // namespace stepnet
