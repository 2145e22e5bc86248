// LeakyRelu: y = x where x >= 0, alpha * x elsewhere.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration leaky_relu = ActivationByOutput("LeakyRelu", "y = x where x >= 0, alpha * x elsewhere.")
                                    .Arg("alpha", 0.01f, "slope below 0", AtLeast(0))
                                    .Formula([](Formula& f) {
                                      const Expr x = f.In("x");
                                      f.Out({Where(x >= 0, x, f.Number("alpha") * x)});
                                    });
// By hand, because a derivative would compare x, which need not be kept; its sign is that of y.
const Registration leaky_relu_gradient =
    GradientOf("LeakyRelu", "dx = dy where y >= 0, alpha * dy elsewhere.").Formula([](Formula& f) {
      const Expr dy = f.In("dy");
      f.Out({Where(f.In("y") >= 0, dy, f.Number("alpha") * dy)});
    });

}  // namespace
}  // namespace stepnet
