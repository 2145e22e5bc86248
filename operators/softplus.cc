// Softplus: y = log(1 + e^x) = max(x, 0) + log(1 + e), with e = e^-|x|, which does not overflow.
// With u = 1 + e as rounded, log(1 + e) = log(u) + (e - (u - 1)) / u keeps the digits of a small e.

#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration softplus = Operator("Softplus")
                                  .Doc("y = log(1 + e^x), element by element.")
                                  .Input("x", "any shape")
                                  .Output("y", "the shape of x")
                                  .Shapes(SameFloats())
                                  .InPlace({{0, 0}})
                                  .Gradient("SoftplusGradient", {"y", "dy"}, {"dx"})
                                  .Formula([](Formula& f) {
                                    const Expr x = f.In("x");
                                    const Expr e = Exp(-Abs(x));
                                    const Expr u = 1 + e;
                                    f.Out({Max(x, 0) + (Log(u) + (e - (u - 1)) / u)});
                                  });

// By hand, because a derivative would read x, which need not be kept. 1 - e^-y = 2 t / (1 + t) with t = tanh(y / 2),
// which keeps the digits of a small y.
const Registration softplus_gradient = Operator("SoftplusGradient")
                                           .Doc("dx = dy * (1 - e^-y), which is dy * sigmoid(x).")
                                           .Input("y", "output of Softplus, any shape")
                                           .Input("dy", "the shape of y")
                                           .Output("dx", "the shape of y")
                                           .Shapes(SameFloats())
                                           .InPlace({{0, 0}, {1, 0}})
                                           .Formula([](Formula& f) {
                                             const Expr t = Tanh(0.5 * f.In("y"));
                                             f.Out({f.In("dy") * (2 * t / (1 + t))});
                                           });

}  // namespace
}  // namespace stepnet
