// Scale: y = scale * x. Clip: y = x held within [min, max].
#include <limits>

#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Registration scale = ElementFunction("Scale", "y = scale * x, element by element.")
                               .Arg("scale", 1.0f, "the factor")
                               .Gradient("Scale", {"dy"}, {"dx"})
                               .Formula([](Formula& f) { f.Out({f.Number("scale") * f.In("x")}); });

void CheckRange(const OperatorCall& op) {
  if (op.Float("min") <= op.Float("max")) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(op.type(), ": min is ", op.Float("min"), ", must not exceed max, which is ", op.Float("max")));
}

const Registration clip =
    ActivationByOutput("Clip", "y = min where x < min, max where x > max, x elsewhere.",
                       "dx = dy where min < y < max, 0 elsewhere.")
        .Arg("min", -kInfinity, "no element of y is less")
        .Arg("max", kInfinity, "no element of y is greater")
        .Check(CheckBy(CheckRange))
        .Formula([](Formula& f) { f.Out({Min(f.Number("max"), Max(f.Number("min"), f.In("x")))}); });

}  // namespace
}  // namespace stepnet
