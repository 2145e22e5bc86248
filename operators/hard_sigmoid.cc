// HardSigmoid: y = alpha * x + beta held within [0, 1].
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration hard_sigmoid =
    ActivationByOutput("HardSigmoid", "y = alpha * x + beta held within [0, 1]: straight lines in place of a sigmoid.",
                       "dx = alpha * dy where 0 < y < 1, 0 elsewhere.")
        .Arg("alpha", 0.2f, "slope")
        .Arg("beta", 0.5f, "y at x = 0")
        .Formula([](Formula& f) {
          const Expr line = f.Number("alpha") * f.In("x") + f.Number("beta");
          f.Out({Min(1, Max(0, line))});
        });

}  // namespace
}  // namespace stepnet
