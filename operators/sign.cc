// Abs: y = |x|. Negative: y = -x.
#include "stepnet/operators/activation.h"

namespace stepnet {
namespace {

const Registration abs =
    Activation("Abs", "y = |x|, element by element.",
               "dx = dy where x > 0, 0 where x = 0, -dy elsewhere, also where x is NaN, as in Caffe2.")
        .Formula([](Formula& f) { f.Out({Abs(f.In("x"))}); });

const Registration negative = Operator("Negative")
                                  .Doc("y = -x, element by element.")
                                  .Input("x", "any shape")
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
