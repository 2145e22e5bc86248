// AveragedLoss: the mean of all elements, what a training net minimises.
#include <algorithm>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/row_sums.h"

namespace stepnet {
namespace {

const Registration averaged_loss = Operator("AveragedLoss")
                                       .Doc("The mean of all elements; 0 where there are none.")
                                       .Input("x", OfFloats("any shape"))
                                       .Output("y", "[]")
                                       .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                         return {{.dtype = query.In(0).dtype, .shape = {}}};
                                       })
                                       .Gradient("AveragedLossGradient", {"x", "dy"}, {"dx"})
                                       .Formula([](Formula& f) {
                                         const std::int64_t count = f.RowsFrom("x", 0);
                                         f.Out({OfRows(RowMean(f.In("x"), count))});
                                       });

// By hand, because the mean is taken in double and its derivative need not be.
const Registration averaged_loss_gradient =
    GradientOf("AveragedLoss", "dx = dy / number of elements of x, for each element. Elements of x are not read.")
        .ReadsShapes({0})
        .Formula([](Formula& f) { f.Out({f.Scalar("dy") / std::max<std::int64_t>(f.RowsFrom("x", 0), 1)}); });

}  // namespace
}  // namespace stepnet
