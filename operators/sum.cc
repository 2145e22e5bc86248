// Sum: y = x0 + x1 + …
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

const Registration sum = Operator("Sum")
                             .Doc("y = x0 + x1 + …, element by element.")
                             .Inputs("x", OfNumbers("one or more of one shape and type", "x"))
                             .Output("y", Like("x"))
                             .InPlace({{0, 0}})
                             .Gradient([](GradientBuilder& g) {
                               for (int i = 0; i < g.op().num_inputs(); ++i) g.SetDense(i, g.GO(0));
                             })
                             .Formula([](Formula& f) {
                               Expr sum;
                               for (const Expr& x : f.Ins("x")) sum = sum.defined() ? sum + x : x;
                               f.Out({sum});
                             });

}  // namespace
}  // namespace stepnet
