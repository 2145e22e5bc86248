// Cross entropy of probabilities:
//   LabelCrossEntropy: y_i = -log max(x_{i, label_i}, 1e-20)
//   CrossEntropy:      y_i = -sum_j label_ij log max(x_ij, 1e-20)
// The floor keeps a probability of 0 from giving infinity; gradients have it too, as in Caffe2.
//
// Operators of labels are kernels: they touch one element of a row, where a formula compares the place of each with the
// label (docs/add_an_operator.md, "Where a kernel stays"). Of 16 bits they are formulas.
#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/labels.h"

namespace stepnet {
namespace {

template <typename T>
constexpr T kLeast = static_cast<T>(kLeastProbability);

// x [N, D…]; a vector is one row.
Rows RowsOf(const ShapeQuery& query) {
  const Shape& x = query.In(0).shape;
  if (x.rank() == 0) {
    throw WrongInputs(query, {0}, "needs x [N, D]");
  }
  return x.rank() == 1 ? Rows{1, x[0]} : Rows{x[0], x.SizeFrom(1)};
}

// Returns how many there are.
std::int64_t RowsOfClasses(Formula& f) { return f.RowsFrom("x", f.ShapeOf("x").rank() == 1 ? 0 : 1); }

// Whether an element is that of the label of its row.
Expr IsOfLabel(Formula& f) {
  const std::int64_t classes = RowsOfClasses(f);
  const Expr label = Cast(DType::kInt64, f.Row("label"));
  f.Check(And(label >= 0, label < classes), StrCat("label {} is {}; there are classes 0 to ", classes - 1), Index(2),
          label);
  return Equal(Index(3), label);
}

// One number for each row.
std::vector<TensorInfo> OfEachRow(const ShapeQuery& query) {
  return {{.dtype = query.In(0).dtype, .shape = Shape({RowsOf(query).count})}};
}

std::vector<TensorInfo> LabelShapes(const ShapeQuery& query) {
  CheckLabelsInfo(query, 1, RowsOf(query));
  return OfEachRow(query);
}

const Registration label_cross_entropy =
    Operator("LabelCrossEntropy")
        .Doc(
            "Minus the logarithm of the probability that x gives to the label: y[i] = -log max(x[i, label[i]], 1e-20).")
        .Input("x", OfFloats("[N, D] probabilities"))
        .Input("label", "int32 or int64 [N] or [N, 1], from 0 to D-1")
        .Output("y", "[N]")
        .Shapes(LabelShapes)
        .Gradient("LabelCrossEntropyGradient", {"x", "label", "dy"}, {"dx"})
        .Formula(FormulaWhere{AppliesToStored,
                              [](Formula& f) {
                                const Expr of_label = RowSum(Where(IsOfLabel(f), f.In("x"), 0));
                                f.Out({OfRows(-Log(Max(of_label, kLeastProbability)))});
                              }},
                 {.checks_values = true})
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) -> RunFn {
                                return FloatKernel(op, []<typename T>(const OpRun& run) {
                                  const std::int64_t rows = run.Out(0).size();
                                  const std::int64_t classes = rows > 0 ? run.In(0).size() / rows : 0;
                                  const T* x = run.In(0).As<T>();
                                  T* y = run.Out(0).As<T>();
                                  for (std::int64_t i = 0; i < rows; ++i) {
                                    const std::int64_t label = LabelAt(run, 1, i, classes);
                                    y[i] = label == kNoClass ? T{1} : std::max(x[i * classes + label], kLeast<T>);
                                  }
                                  VectorLog(y, y, rows);
                                  for (std::int64_t i = 0; i < rows; ++i) y[i] = -y[i];
                                });
                              },
                              .checks_values = true}));

// By hand, because the floor passes its gradient on, as in Caffe2, where Max of a derivative would not.
const Registration label_cross_entropy_gradient =
    GradientOf("LabelCrossEntropy", "dx[i, label[i]] = -dy[i] / max(x[i, label[i]], 1e-20), 0 elsewhere.")
        .Formula(FormulaWhere{AppliesToStored,
                              [](Formula& f) {
                                const Expr is_of_label = IsOfLabel(f);
                                const Expr dx = -f.Row("dy") / Max(f.In("x"), kLeastProbability);
                                f.Out({Where(is_of_label, dx, 0)});
                              }},
                 {.checks_values = true})
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) -> RunFn {
                                return FloatKernel(op, []<typename T>(const OpRun& run) {
                                  const std::int64_t rows = run.In(2).size();
                                  const std::int64_t classes = rows > 0 ? run.In(0).size() / rows : 0;
                                  const T* x = run.In(0).As<T>();
                                  T* dx = run.Out(0).As<T>();
                                  std::fill_n(dx, run.Out(0).size(), T{0});
                                  for (std::int64_t i = 0; i < rows; ++i) {
                                    const std::int64_t label = LabelAt(run, 1, i, classes);
                                    if (label == kNoClass) continue;
                                    const std::int64_t at = i * classes + label;
                                    dx[at] = -run.In(2).As<T>()[i] / std::max(x[at], kLeast<T>);
                                  }
                                });
                              },
                              .checks_values = true}));

const Registration cross_entropy =
    Operator("CrossEntropy")
        .Doc(
            "Cross entropy of probabilities with labels that are probabilities themselves: "
            "y[i] = -sum_j label[i, j] log max(x[i, j], 1e-20).")
        .Input("x", OfFloats("[N, D] probabilities"))
        .Input("label", Like("x", "each from 0 to 1"))
        .Output("y", "[N]")
        .Shapes(OfEachRow)
        .Gradient("CrossEntropyGradient", {"x", "label", "dy"}, {"dx"})
        .Formula(
            [](Formula& f) {
              RowsOfClasses(f);
              const Expr label = f.In("label");
              const Expr log_x = Log(Max(f.In("x"), kLeastProbability));
              f.Check(And(label >= 0, label <= 1),
                      "label [{}, {}] is {}; CrossEntropy needs probabilities (LabelCrossEntropy takes numbers of "
                      "classes)",
                      Index(2), Index(3), label);
              const Expr sum = RowSum(-Cast(DType::kDouble, label) * Cast(DType::kDouble, log_x));
              f.Out({OfRows(Cast(label.dtype(), sum))});
            },
            {.checks_values = true});

// By hand, because of the floor, as that of labels.
const Registration cross_entropy_gradient =
    GradientOf("CrossEntropy", "dx[i, j] = -dy[i] label[i, j] / max(x[i, j], 1e-20).").Formula([](Formula& f) {
      RowsOfClasses(f);
      f.Out({-f.Row("dy") * (f.In("label") / Max(f.In("x"), kLeastProbability))});
    });

}  // namespace
}  // namespace stepnet
