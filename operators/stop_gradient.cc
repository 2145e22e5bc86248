// StopGradient and ZeroGradient: what says where gradients end.
#include "stepnet/core/expansion.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

const Registration stop_gradient =
    Operator("StopGradient")
        .Doc("y = x; no gradient passes from y to x.")
        .Input("x", "any shape and type")
        .Output("y", "the shape and type of x")
        .Shapes([](const ShapeQuery& query) { return std::vector<TensorInfo>{query.In(0)}; })
        .InPlace({{0, 0}})
        .Expands(ExpandCopy)
        .StopsGradient()
        .OnEveryDevice(CopyKernel());

const Registration zero_gradient =
    Operator("ZeroGradient")
        .Doc("Does nothing; gives x a gradient of zeros, for nets that need one where nothing else gives it.")
        .Input("x", "any shape, float or double")
        .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>{}; })
        .Gradient([](GradientBuilder& g) {
          g.Add({.type = "ConstantFill",
                 .inputs = {g.I(0)},
                 .outputs = {g.GI(0)},
                 .arguments = {{"value", {.f = 0.0f}}},
                 .copies_arguments = false});
        })
        .OnEveryDevice({.make = [](const OperatorCall&) -> RunFn { return [](const OpRun&) {}; }});

}  // namespace
}  // namespace stepnet
