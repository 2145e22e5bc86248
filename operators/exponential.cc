// Exp: y = e^x. Log: the natural logarithm.
#include "stepnet/core/vector_math.h"
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
                             .Elementwise()
                             .Gradient([](GradientBuilder& g) {
                               g.Add({.type = "Mul", .inputs = {g.O(0), g.GO(0)}, .outputs = {g.GI(0)}});
                             })
                             .Cpu([](const OperatorCall& op) -> RunFn {
                               return [type = op.type()](const OpRun& run) {
                                 ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
                                   using T = decltype(zero);
                                   VectorExp(run.In(0).As<T>(), run.Out(0).As<T>(), run.Out(0).size());
                                 });
                               };
                             });

const Registration log = Operator("Log")
                             .Doc("The natural logarithm, element by element: -infinity at 0, NaN below.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Elementwise()
                             .Gradient([](GradientBuilder& g) {
                               ExpectInputsKept(g);
                               g.Add({.type = "Div", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(0)}});
                             })
                             .Cpu([](const OperatorCall& op) -> RunFn {
                               return [type = op.type()](const OpRun& run) {
                                 ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
                                   using T = decltype(zero);
                                   VectorLog(run.In(0).As<T>(), run.Out(0).As<T>(), run.Out(0).size());
                                 });
                               };
                             });

}  // namespace
}  // namespace stepnet
