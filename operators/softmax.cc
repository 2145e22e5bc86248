// Softmax: y_i = exp(x_i) / sum_j exp(x_j), and LogSoftmax: y_i = x_i - log(sum_j exp(x_j)), over the rows of x as a
// matrix [N, D] of its sizes before and from `axis`. The largest element of the row is taken off first, so that no
// exponential overflows.
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

// Throws kInvalidArgument for one that x, or y, does not have.
void CheckAxis(const ShapeQuery& query) { query.In(0).shape.CanonicalAxis(query.op().Int("axis")); }

Expr Softmax(const Expr& x) {
  const Expr e = Exp(x - RowMax(x));
  return e / RowSum(e);
}
Expr LogSoftmax(const Expr& x) {
  const Expr difference = x - RowMax(x);
  return difference - Log(RowSum(Exp(difference)));
}
Expr SoftmaxGradient(const Expr& y, const Expr& dy) { return y * (dy - RowSum(y * dy)); }
Expr LogSoftmaxGradient(const Expr& y, const Expr& dy) { return MulAdd(Exp(y), -RowSum(dy), dy); }

Operator Forward(const char* type, Expr (*y)(const Expr& x), const char* doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", OfFloats("[N, D], each of them any number of sizes"))
      .Output("y", Like("x"))
      .Arg("axis", 1, "sizes of x from here on make D, those before make N; negative counts from the end")
      .CheckShapes(CheckAxis)
      .Gradient(std::string(type) + "Gradient", {"y", "dy"}, {"dx"})
      .Formula([y](Formula& f) {
        f.RowsFrom("x", f.Int("axis"));
        f.Out({y(f.In("x"))});
      });
  return op;
}

// By hand, because a derivative would read x, and go through the largest element as well, on which no result depends.
Operator Gradient(const char* type, Expr (*dx)(const Expr& y, const Expr& dy), const char* doc) {
  return std::move(GradientOf(type, doc).Formula([dx](Formula& f) {
    f.RowsFrom("y", f.Int("axis"));
    f.Out({dx(f.In("y"), f.In("dy"))});
  }));
}

const Registration softmax = Forward("Softmax", Softmax, "y = exp(x) over the sum of exp(x), row by row.");
const Registration softmax_gradient = Gradient("Softmax", SoftmaxGradient, "dx = y (dy - sum of y dy over the row).");
const Registration log_softmax = Forward("LogSoftmax", LogSoftmax, "y = the logarithm of Softmax, row by row.");
const Registration log_softmax_gradient =
    Gradient("LogSoftmax", LogSoftmaxGradient, "dx = dy - exp(y) times the sum of dy over the row.");

}  // namespace
}  // namespace stepnet
