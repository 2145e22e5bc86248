// Swish: y = x * sigmoid(x).
// Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017, with beta = 1.
#include "stepnet/operators/map_through.h"

namespace stepnet {
namespace {

const Registration swish = Operator("Swish")
                               .Doc("y = x * sigmoid(x), element by element.")
                               .Input("x", "any shape")
                               .Output("y", "the shape of x")
                               .Shapes(SameFloats())
                               .Elementwise()
                               .Gradient("SwishGradient", {"x", "y", "dy"}, {"dx"})
                               .Cpu([](const OperatorCall& op) {
                                 return MapThrough(
                                     op, [](auto x) { return x; }, kSigmoid, [](auto x, auto s) { return x * s; });
                               });

const Registration swish_gradient = Operator("SwishGradient")
                                        .Doc("dx = dy * (y + sigmoid(x) * (1 - y)).")
                                        .Input("x", "input of Swish, any shape")
                                        .Input("y", "output of Swish, the shape of x")
                                        .Input("dy", "the shape of x")
                                        .Output("dx", "the shape of x")
                                        .Shapes(SameFloats())
                                        .InPlace({{0, 0}, {1, 0}, {2, 0}})
                                        .Elementwise()
                                        .Cpu([](const OperatorCall& op) {
                                          return MapThrough(
                                              op, [](auto x) { return x; }, kSigmoid,
                                              [](auto, auto y, auto dy, auto s) { return dy * (y + s * (1 - y)); });
                                        });

}  // namespace
}  // namespace stepnet
