// Abs: y = |x|. Negative: y = -x.

#include "stepnet/core/formula.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/input_checks.h"

namespace stepnet {
namespace {

const Registration abs = Operator("Abs")
                             .Doc("y = |x|, element by element.")
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameFloats())
                             .InPlace({{0, 0}})
                             .Gradient(GradientFromInput("AbsGradient"))
                             .Formula([](Formula& f) { f.Out({Abs(f.In("x"))}); });

const Registration abs_gradient = Operator("AbsGradient")
                                      .Doc("dx = dy where x > 0, -dy where x < 0, 0 where x = 0.")
                                      .Input("x", "input of Abs, any shape")
                                      .Input("dy", "the shape of x")
                                      .Output("dx", "the shape of x")
                                      .Shapes(SameFloats())
                                      .InPlace({{0, 0}, {1, 0}})
                                      .Formula(DerivativeOf("Abs"));

const Registration negative = Operator("Negative")
                                  .Doc("y = -x, element by element.")
                                  .Input("x", "any shape; float, double, int32 or int64")
                                  .Output("y", "the shape of x")
                                  .Shapes([](const ShapeQuery& query) {
                                    ExpectType(query, 0, {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64});
                                    return SameAsInput(0)(query);
                                  })
                                  .InPlace({{0, 0}})
                                  .Gradient("Negative", {"dy"}, {"dx"})
                                  .Formula([](Formula& f) { f.Out({-f.In("x")}); });

}  // namespace
}  // namespace stepnet
