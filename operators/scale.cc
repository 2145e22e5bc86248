// Scale: y = scale * x. Clip: y = x held within [min, max].
#include <limits>

#include "stepnet/operators/elementwise.h"

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
                               .Elementwise()
                               .Gradient("Scale", {"dy"}, {"dx"})
                               .Cpu([](const OperatorCall& op) {
                                 return Map(op, [scale = op.Float("scale")](auto x) { return decltype(x){scale} * x; });
                               });

struct Range {
  float min;
  float max;
};

Range RangeOf(const OperatorCall& op) {
  const Range range{op.Float("min"), op.Float("max")};
  if (range.min <= range.max) return range;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(op.type(), ": min is ", range.min, ", must not exceed max, which is ", range.max));
}

const Registration clip = Operator("Clip")
                              .Doc("y = min where x < min, max where x > max, x elsewhere.")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Arg("min", -kInfinity, "no element of y is less")
                              .Arg("max", kInfinity, "no element of y is greater")
                              .Shapes(SameFloats())
                              .InPlace({{0, 0}})
                              .Elementwise()
                              .Gradient("ClipGradient", {"y", "dy"}, {"dx"})
                              .Cpu([](const OperatorCall& op) {
                                return Map(op, [range = RangeOf(op)](auto x) {
                                  using T = decltype(x);
                                  const T low = range.min;
                                  const T high = range.max;
                                  return x < low ? low : x > high ? high : x;
                                });
                              });

const Registration clip_gradient = Operator("ClipGradient")
                                       .Doc("dx = dy where min < y < max, 0 elsewhere.")
                                       .Input("y", "output of Clip, any shape")
                                       .Input("dy", "the shape of y")
                                       .Output("dx", "the shape of y")
                                       .Arg("min", -kInfinity, "as in Clip")
                                       .Arg("max", kInfinity, "as in Clip")
                                       .Shapes(SameFloats())
                                       .InPlace({{0, 0}, {1, 0}})
                                       .Elementwise()
                                       .Cpu([](const OperatorCall& op) {
                                         return Map(op, [range = RangeOf(op)](auto y, auto dy) {
                                           using T = decltype(y);
                                           return y > T{range.min} && y < T{range.max} ? dy : T{0};
                                         });
                                       });

}  // namespace
}  // namespace stepnet
