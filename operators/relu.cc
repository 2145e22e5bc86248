// Relu: y = max(x, 0).
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration relu = ActivationByOutput("Relu", "Rectified linear unit: y = max(x, 0), element by element.",
                                             "dx = dy where y > 0, 0 elsewhere.")
                              .Formula([](Formula& f) { f.Out({Max(f.In("x"), 0)}); });

}  // namespace
}  // namespace stepnet
