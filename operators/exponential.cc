// Exp: y = e^x. Log: the natural logarithm.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration exp = ElementFunction("Exp", "y = e^x, element by element.")
                             .Gradient([](GradientBuilder& g) {
                               g.Add({.type = "Mul", .inputs = {g.O(0), g.GO(0)}, .outputs = {g.GI(0)}});
                             })
                             .Formula([](Formula& f) { f.Out({Exp(f.In("x"))}); });

const Registration log = ElementFunction("Log", "The natural logarithm, element by element: -infinity at 0, NaN below.")
                             .Gradient([](GradientBuilder& g) {
                               ExpectInputsKept(g);
                               g.Add({.type = "Div", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(0)}});
                             })
                             .Formula([](Formula& f) { f.Out({Log(f.In("x"))}); });

}  // namespace
}  // namespace stepnet
