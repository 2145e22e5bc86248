// AddGradient: what becomes of a gradient that is asked for by `add` (nets/gradient_request.h).
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// Add would repeat one of them, and a gradient in another shape than the sum's is somebody's mistake.
void ExpectSumOfGradient(const ShapeQuery& query) {
  const TensorInfo &sum = query.In(0), &gradient = query.In(1);
  const bool is_type = sum.dtype != gradient.dtype;
  if (!is_type && sum.shape == gradient.shape) return;
  throw Error(is_type ? ErrorCode::kTypeMismatch : ErrorCode::kShapeMismatch,
              StrCat("gradient_requests says add for \"", query.op().inputs()[0], "\", which holds ", sum.Description(),
                     " and must hold ", gradient.Description(),
                     ", as the gradient is; for a new sum fill it with zeros of that shape and type"));
}

const Registration add_gradient =
    Operator("AddGradient")
        .Doc(
            "sum = sum + gradient, in place: gradients of several runs become one. AddGradients, `rnn_runner grad` and "
            "Python add it to nets where gradient_requests says add.")
        .Input("sum", "the gradients so far, of the shape and type of the gradient; zeros for a new sum")
        .Input("gradient", OfFloats("any shape"))
        .Output("sum", Like("sum", "the first input"))
        .CheckShapes(ExpectSumOfGradient)
        .EnforceInPlace({{0, 0}})
        .Formula([](Formula& f) { f.Out({f.In("sum") + f.In("gradient")}); });

}  // namespace
}  // namespace stepnet
