// Exp: y = e^x. Log: the natural logarithm.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration exp =
    ElementFunction("Exp", "y = e^x, element by element.").Gradient("Mul", {"y", "dy"}, {"dx"}).Formula([](Formula& f) {
      f.Out({Exp(f.In("x"))});
    });

const Registration log = ElementFunction("Log", "The natural logarithm, element by element: -infinity at 0, NaN below.")
                             .Gradient("Div", {"dy", "x"}, {"dx"})
                             .Formula([](Formula& f) { f.Out({Log(f.In("x"))}); });

}  // namespace
}  // namespace stepnet
