// Exp: y = e^x. Log: the natural logarithm.
#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration exp = Operator("Exp")
                             .Doc("y = e^x, element by element.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Gradient([](GradientBuilder& g) {
                               g.Add({.type = "Mul", .inputs = {g.O(0), g.GO(0)}, .outputs = {g.GI(0)}});
                             })
                             .Formula([](Formula& f) { f.Out({Exp(f.In("x"))}); });

const Registration log = Operator("Log")
                             .Doc("The natural logarithm, element by element: -infinity at 0, NaN below.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Gradient([](GradientBuilder& g) {
                               ExpectInputsKept(g);
                               g.Add({.type = "Div", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(0)}});
                             })
                             .Formula([](Formula& f) { f.Out({Log(f.In("x"))}); });

}  // namespace
}  // namespace stepnet
