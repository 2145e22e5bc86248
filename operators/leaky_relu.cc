// LeakyRelu: y = x where x >= 0, alpha * x elsewhere.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

const Registration leaky_relu = Operator("LeakyRelu")
                                    .Doc("y = x where x >= 0, alpha * x elsewhere.")
                                    .Input("x", "any shape")
                                    .Output("y", "the shape of x")
                                    .Arg("alpha", 0.01f, "slope below 0", AtLeast(0))
                                    .Shapes(SameFloats())
                                    .InPlace({{0, 0}})
                                    .Gradient("LeakyReluGradient", {"y", "dy"}, {"dx"})
                                    .Formula([](Formula& f) {
                                      const Expr x = f.In("x");
                                      f.Out({Where(x >= 0, x, f.Number("alpha") * x)});
                                    });

// Takes y, whose sign is that of x, so that the forward pass may overwrite x.
const Registration leaky_relu_gradient = Operator("LeakyReluGradient")
                                             .Doc("dx = dy where y >= 0, alpha * dy elsewhere.")
                                             .Input("y", "output of LeakyRelu, any shape")
                                             .Input("dy", "the shape of y")
                                             .Output("dx", "the shape of y")
                                             .Arg("alpha", 0.01f, "as in LeakyRelu", AtLeast(0))
                                             .Shapes(SameFloats())
                                             .InPlace({{0, 0}, {1, 0}})
                                             .Formula([](Formula& f) {
                                               const Expr dy = f.In("dy");
                                               f.Out({Where(f.In("y") >= 0, dy, f.Number("alpha") * dy)});
                                             });

}  // namespace
}  // namespace stepnet
