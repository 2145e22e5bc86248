// LayerNorm: y = (x - mean) / std over the dimensions from `axis` on, with std = sqrt(variance + epsilon).
// Source: Ba, Kiros, Hinton, "Layer Normalization", 2016, eq. 3, without gain and bias.
//
// Gradient, with averages over the same dimensions: dx = (dy - average(dy) - y * average(dy * y)) / std.
//
// The variance is the average square of what is left after the mean: x^2 - mean^2 would lose its digits.
#include <algorithm>
#include <cstdint>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// Mean and std have the dimensions before `axis`, and one of size 1.
Shape StatisticsShape(const Shape& x, int axis) {
  Shape shape = x;
  while (shape.rank() > axis) shape = shape.Without(shape.rank() - 1);
  return shape.Inserted(axis, 1);
}

// The average over a row of `count` elements; 0 where there are none.
Expr Average(const Expr& value, std::int64_t count) {
  return RowSum(value) / static_cast<double>(std::max<std::int64_t>(count, 1));
}

// Throws when the rank of x, input i, does not have the axis.
int AxisOf(const ShapeQuery& query, int i) {
  return query.In(i).shape.CanonicalAxis(query.op().Int("axis"), "LayerNorm: axis");
}

const Registration layer_norm =
    Operator("LayerNorm")
        .Doc("Normalizes the dimensions from `axis` on to mean 0 and variance 1: y = (x - mean) / std.")
        .Input("x", OfFloats("[N, …, D, …], where D is dimension `axis`"))
        .Output("y", "the shape of x")
        .Output("mean", "[N, …, 1]")
        .Output("std", "[N, …, 1], sqrt(variance + epsilon)")
        .Arg("axis", 1, "the first dimension that is normalized; negative: from the end")
        .Arg("epsilon", 1e-5f, "added to the variance", AtLeast(0))
        .InPlace({{0, 0}})
        .Shapes([](const ShapeQuery& query) {
          const auto& [dtype, shape, value] = query.In(0);
          const Shape statistics = StatisticsShape(shape, AxisOf(query, 0));
          return std::vector<TensorInfo>{{.dtype = dtype, .shape = shape},
                                         {.dtype = dtype, .shape = statistics},
                                         {.dtype = dtype, .shape = statistics}};
        })
        .Gradient("LayerNormGradient", {"dy", "y", "mean", "std", "x"}, {"dx"})
        .Formula([](Formula& f) {
          const std::int64_t count = f.RowsFrom("x", f.Int("axis"));
          const Expr x = f.In("x");
          const Expr mean = Average(x, count);
          const Expr centered = x - mean;
          const Expr deviation = Sqrt(Average(centered * centered, count) + f.Number("epsilon"));
          f.Out({centered * (1 / deviation), OfRows(mean), OfRows(deviation)});
        });

// By hand, of y and std, because a derivative would read x and go through mean and deviation one by one.
const Registration layer_norm_gradient =
    GradientOf("LayerNorm", "dx = (dy - average(dy) - y * average(dy * y)) / std. Elements of mean and x are not read.")
        .ReadsShapes({2, 4})
        .InPlace({{0, 0}})
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          ExpectAlike(query, 2, 3);
          const Shape statistics = StatisticsShape(query.In(0).shape, AxisOf(query, 0));
          if (query.In(3).shape != statistics) {
            throw WrongInputs(query, {3}, StrCat("needs std ", statistics, " for ", InputText(query, 0)));
          }
        })
        .Formula([](Formula& f) {
          const std::int64_t count = f.RowsFrom("dy", f.Int("axis"));
          const Expr dy = f.In("dy"), y = f.In("y");
          const Expr rest = dy - Average(dy, count);
          f.Out({MulAdd(y, -Average(dy * y, count), rest) * (1 / f.Row("std"))});
        });

}  // namespace
}  // namespace stepnet
