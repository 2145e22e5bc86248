// ElementwiseLinear: y = x * w + b, where w and b are repeated over the rows of x.
//
// Gradient, with sums over the rows: dx = dy * w, dw = sum(dy * x), db = sum(dy).
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// Throws unless input `vector` is [D], where the dimensions of input `x` from `axis` on have D elements.
void CheckVector(const ShapeQuery& query, int x, int vector) {
  const Shape& shape = query.In(x).shape;
  const int axis = shape.CanonicalAxis(query.op().Int("axis"), "ElementwiseLinear: axis");
  const Shape& found = query.In(vector).shape;
  if (found.rank() == 1 && found[0] == shape.SizeFrom(axis)) return;
  throw WrongInputs(
      query, {x, vector},
      StrCat("with axis ", axis, " needs ", query.op().inputs()[vector], " [", shape.SizeFrom(axis), "]"));
}

const Registration elementwise_linear =
    Operator("ElementwiseLinear")
        .Doc("y = x * w + b, element by element, where w and b are repeated over the rows of x.")
        .Input("x", "[N, D] or more dimensions, see axis")
        .Input("w", "[D]")
        .Input("b", "[D]")
        .Output("y", Like("x"))
        .Arg("axis", 1, "x is seen as [N, D], where D are the dimensions from this on; negative: from the end")
        .InPlace({{0, 0}})
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          for (const int vector : {1, 2}) CheckVector(query, 0, vector);
        })
        .Gradient("ElementwiseLinearGradient", {"dy", "x", "w"}, {"dx", "dw", "db"})
        .Formula([](Formula& f) {
          f.RowsFrom("x", f.Int("axis"));
          f.Out({MulAdd(f.In("x"), f.Column("w"), f.Column("b"))});
        });

const Registration elementwise_linear_gradient =
    GradientOf("ElementwiseLinear", "dx = dy * w; dw and db are the sums of dy * x and dy over the rows.")
        .InPlace({{0, 0}})
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloats(query);
          CheckVector(query, 1, 2);
        })
        .Formula(DerivativeOf("ElementwiseLinear"));

}  // namespace
}  // namespace stepnet
