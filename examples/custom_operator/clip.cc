// acme.Clip: y = min(max(x, -limit), limit), an operator that StepNet does not have.
#include <algorithm>

#include "stepnet/operators/elementwise.h"

namespace {

using stepnet::AtLeast;
using stepnet::Map;
using stepnet::Operator;
using stepnet::OperatorCall;
using stepnet::Registration;
using stepnet::SameFloats;

const Registration clip = Operator("acme.Clip")
                              .Doc("Limits each element to [-limit, limit].")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Arg("limit", 1.0f, "the largest absolute value of y", AtLeast(0))
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Elementwise()
                              .Gradient("acme.ClipGradient", {"y", "dy"}, {"dx"})
                              .Cpu([](const OperatorCall& op) {
                                const float limit = op.Float("limit");
                                return Map(op, [limit](auto x) {
                                  using T = decltype(x);
                                  return std::clamp(x, -T{limit}, T{limit});
                                });
                              });

// Takes y, not x, so that the forward pass may overwrite x. The forward operator's arguments come with it.
const Registration clip_gradient = Operator("acme.ClipGradient")
                                       .Doc("dx = dy where |y| < limit, 0 elsewhere.")
                                       .Input("y", "output of acme.Clip, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Arg("limit", 1.0f, "as in acme.Clip", AtLeast(0))
                                       .Shapes(SameFloats())
                                       .InPlace({{1, 0}})
                                       .Elementwise()
                                       .Cpu([](const OperatorCall& op) {
                                         const float limit = op.Float("limit");
                                         return Map(op, [limit](auto y, auto dy) {
                                           using T = decltype(dy);
                                           return -limit < y && y < limit ? dy : T{0};
                                         });
                                       });

}  // namespace
