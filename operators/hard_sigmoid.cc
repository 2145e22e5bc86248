// HardSigmoid: y = alpha * x + beta held within [0, 1].
#include "stepnet/core/formula.h"
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
        .Gradient("HardSigmoidGradient", {"y", "dy"}, {"dx"})
        .Formula([](Formula& f) {
          const Expr line = f.Number("alpha") * f.In("x") + f.Number("beta");
          f.Out({Min(1, Max(0, line))});
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
                                               .Formula(DerivativeOf("HardSigmoid"));

}  // namespace
}  // namespace stepnet
