// acme.Clip: y = min(max(x, -limit), limit), an operator that StepNet does not have. A formula says what it computes;
// the kernel, the shapes and the gradient follow from it.
#include "stepnet/core/formulas/formula.h"

namespace {

using namespace stepnet;

const Registration clip = Operator("acme.Clip")
                              .Doc("Limits each element to [-limit, limit].")
                              .Input("x", "any shape, float or double")
                              .Output("y", "the shape of x")
                              .Arg("limit", 1.0f, "the largest absolute value of y", AtLeast(0))
                              .InPlace({{0, 0}})
                              .Gradient("acme.ClipGradient", {"y", "dy"}, {"dx"})
                              .Formula([](Formula& f) {
                                const double limit = f.Number("limit");
                                f.Out({Min(Max(f.In("x"), -limit), limit)});
                              });

// Its formula follows from that of acme.Clip. Takes y, not x, so that the forward pass may overwrite x; the forward
// operator's arguments come with it.
const Registration clip_gradient = Operator("acme.ClipGradient")
                                       .Doc("dx = dy where |y| < limit, 0 elsewhere.")
                                       .Input("y", "output of acme.Clip")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Arg("limit", 1.0f, "as in acme.Clip", AtLeast(0))
                                       .InPlace({{1, 0}})
                                       .Formula(DerivativeOf("acme.Clip"));

}  // namespace
