// HardSigmoid: y = alpha * x + beta held within [0, 1].
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration hard_sigmoid =
    Operator("HardSigmoid")
        .Doc("y = alpha * x + beta held within [0, 1]: straight lines in place of a sigmoid.")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Arg("alpha", 0.2f, "slope")
        .Arg("beta", 0.5f, "y at x = 0")
        .Shapes(SameFloats())
        .InPlace({{0, 0}})
        .Elementwise()
        .Gradient("HardSigmoidGradient", {"y", "dy"}, {"dx"})
        .Cpu([](const OperatorCall& op) {
          return Map(op, [alpha = op.Float("alpha"), beta = op.Float("beta")](auto x) {
            using T = decltype(x);
            const T line = T{alpha} * x + T{beta};
            return line < 0 ? T{0} : line > 1 ? T{1} : line;
          });
        });

const Registration hard_sigmoid_gradient = Operator("HardSigmoidGradient")
                                               .Doc("dx = alpha * dy where 0 < y < 1, 0 elsewhere.")
                                               .Input("y", "output of HardSigmoid, any shape")
                                               .Input("dy", "the shape of y")
                                               .Output("dx", "the shape of y")
                                               .Arg("alpha", 0.2f, "as in HardSigmoid")
                                               .Arg("beta", 0.5f, "as in HardSigmoid")
                                               .Shapes(SameFloats())
                                               .InPlace({{0, 0}, {1, 0}})
                                               .Elementwise()
                                               .Cpu([](const OperatorCall& op) {
                                                 return Map(op, [alpha = op.Float("alpha")](auto y, auto dy) {
                                                   using T = decltype(y);
                                                   return y > 0 && y < 1 ? T{alpha} * dy : T{0};
                                                 });
                                               });

}  // namespace
}  // namespace stepnet
