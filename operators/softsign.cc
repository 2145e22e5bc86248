// Softsign: y = x / (1 + |x|).
#include <cmath>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration softsign =
    Operator("Softsign")
        .Doc("y = x / (1 + |x|), element by element.")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Shapes(SameFloats())
        .InPlace({{0, 0}})
        .Elementwise()
        .Gradient(GradientFromInput("SoftsignGradient"))
        .Cpu([](const OperatorCall& op) { return Map(op, [](auto x) { return x / (1 + std::abs(x)); }); });

const Registration softsign_gradient = Operator("SoftsignGradient")
                                           .Doc("dx = dy / (1 + |x|)^2.")
                                           .Input("x", "input of Softsign, any shape")
                                           .Input("dy", "the shape of x")
                                           .Output("dx", "the shape of x")
                                           .Shapes(SameFloats())
                                           .InPlace({{0, 0}, {1, 0}})
                                           .Elementwise()
                                           .Cpu([](const OperatorCall& op) {
                                             return Map(op, [](auto x, auto dy) {
                                               const auto root = 1 + std::abs(x);
                                               return dy / (root * root);
                                             });
                                           });

}  // namespace
}  // namespace stepnet
