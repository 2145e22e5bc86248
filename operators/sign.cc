// Abs: y = |x|. Negative: y = -x.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration abs =
    Activation("Abs", "y = |x|, element by element.",
               "dx = dy where x > 0, 0 where x = 0, -dy elsewhere, also where x is NaN, as in Caffe2.")
        .Formula([](Formula& f) { f.Out({Abs(f.In("x"))}); });

const Registration negative = Operator("Negative")
                                  .Doc("y = -x, element by element.")
                                  .Input("x", OfNumbers("any shape"))
                                  .Output("y", Like("x"))
                                  .InPlace({{0, 0}})
                                  .Gradient("Negative", {"dy"}, {"dx"})
                                  .Formula([](Formula& f) { f.Out({-f.In("x")}); });

}  // namespace
}  // namespace stepnet
