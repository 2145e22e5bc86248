// acme.Clip: y = min(max(x, -limit), limit), an operator that StepNet does not have. A formula says what it computes;
// the kernel, the shapes and the gradient operator, acme.ClipGradient, follow from it. That takes y, not x, so that the
// forward pass may overwrite x.
#include "stepnet/core/formulas/formula.h"

namespace {

using namespace stepnet;

const Registration clip =
    Operator("acme.Clip")
        .Doc("Limits each element to [-limit, limit].")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Arg("limit", 1.0f, "the largest absolute value of y", AtLeast(0))
        .InPlace({{0, 0}})
        .DerivedGradient({"y", "dy"}, {"dx"}, "dx = dy where |y| < limit, 0 elsewhere.")
        .Formula([](Formula& f) { f.Out({Min(Max(f.In("x"), -f.Number("limit")), f.Number("limit"))}); });

}  // namespace
