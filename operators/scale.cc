// Scale: y = scale * x. Clip: y = x held within [min, max].
#include <limits>

#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Registration scale = Operator("Scale")
                               .Doc("y = scale * x, element by element.")
                               .Input("x", "any shape")
                               .Output("y", "the shape of x")
                               .Arg("scale", 1.0f, "the factor")
                               .Shapes(SameFloats())
                               .InPlace({{0, 0}})
                               .Gradient("Scale", {"dy"}, {"dx"})
                               .Formula([](Formula& f) { f.Out({f.Number("scale") * f.In("x")}); });

void CheckRange(const OperatorCall& op) {
  if (op.Float("min") <= op.Float("max")) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(op.type(), ": min is ", op.Float("min"), ", must not exceed max, which is ", op.Float("max")));
}

const Registration clip =
    Operator("Clip")
        .Doc("y = min where x < min, max where x > max, x elsewhere.")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Arg("min", -kInfinity, "no element of y is less")
        .Arg("max", kInfinity, "no element of y is greater")
        .Shapes(SameFloats())
        .InPlace({{0, 0}})
        .Check(CheckBy(CheckRange))
        .Gradient("ClipGradient", {"y", "dy"}, {"dx"})
        .Formula([](Formula& f) { f.Out({Min(f.Number("max"), Max(f.Number("min"), f.In("x")))}); });

const Registration clip_gradient = Operator("ClipGradient")
                                       .Doc("dx = dy where min < y < max, 0 elsewhere.")
                                       .Input("y", "output of Clip, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Arg("min", -kInfinity, "as in Clip")
                                       .Arg("max", kInfinity, "as in Clip")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Check(CheckBy(CheckRange))
                                       .Formula(DerivativeOf("Clip"));

}  // namespace
}  // namespace stepnet
