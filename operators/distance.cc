// Distances between the rows of two tensors:
//   SquaredL2Distance: d_i = sum_j (x_ij - y_ij)^2 / 2
//   L1Distance:        d_i = sum_j |x_ij - y_ij|
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/row_sums.h"

namespace stepnet {
namespace {

// A scalar is a row of one element.
std::int64_t NumRows(const Shape& x) { return x.rank() > 0 ? x[0] : 1; }

std::vector<TensorInfo> DistanceShapes(const ShapeQuery& query) {
  return {{.dtype = query.In(0).dtype, .shape = Shape({NumRows(query.In(0).shape)})}};
}

// x - y, element by element; a row is all that has one index of the first dimension.
Expr Difference(Formula& f) {
  f.RowsFrom("x", 1);
  return f.In("x") - f.In("y");
}

// The sum of a term over each row.
FormulaRule SumOfTerms(Expr (*term)(const Expr& difference)) {
  return [term](Formula& f) { f.Out({OfRows(RowSumInDouble(term(Difference(f))))}); };
}

// dy = -dx.
FormulaRule BothGradients(Expr (*dx)(const Expr& difference, const Expr& dd)) {
  return [dx](Formula& f) {
    const Expr gradient = dx(Difference(f), f.Row("dd"));
    f.Out({gradient, -gradient});
  };
}

Operator Distance(const char* type, const char* doc) {
  return Operator(type)
      .Doc(doc)
      .Input("x", OfFloats("[N, …]"))
      .Input("y", Like("x"))
      .Output("d", "[N]")
      .Shapes(DistanceShapes);
}

const Registration squared_l2_distance =
    Distance("SquaredL2Distance", "Half the squared Euclidean distance of each row of x to that of y.")
        .Gradient("SquaredL2DistanceGradient", {"x", "y", "dd"}, {"dx", "dy"})
        .Formula(SumOfTerms([](const Expr& difference) { return difference * difference / 2; }));

// By hand, here and below, because dy = -dx is computed once for both, in the type of x.
const Registration squared_l2_distance_gradient =
    GradientOf("SquaredL2Distance", "dx = (x - y) * dd, dy = -dx, dd being that of the row.")
        .Formula(BothGradients([](const Expr& difference, const Expr& dd) { return difference * dd; }));

const Registration l1_distance = Distance("L1Distance", "The sum of |x - y| over each row.")
                                     .Gradient("L1DistanceGradient", {"x", "y", "dd"}, {"dx", "dy"})
                                     .Formula(SumOfTerms([](const Expr& difference) { return Abs(difference); }));

// Differences below the threshold count as 0, as in Caffe2.
const Registration l1_distance_gradient =
    GradientOf("L1Distance", "dx = sign(x - y) * dd, dy = -dx; 0 where |x - y| is at most 1e-12.")
        .Formula(BothGradients([](const Expr& difference, const Expr& dd) {
          constexpr double kThreshold = 1e-12;
          const Expr sign = Where(difference > kThreshold, dd, Where(difference < -kThreshold, -dd, 0));
          return Where(Equal(difference, difference), sign, difference);  // NaN stays NaN
        }));

}  // namespace
}  // namespace stepnet
