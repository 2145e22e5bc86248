// Formulas of operators that are kernels alone, which operator_bench measures beside these as OpByFormula/…: why the
// kernels stay (docs/add_an_operator.md).
#include <limits>

#include "stepnet/core/class_labels.h"
#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

Operator Trial(const char* type) {
  Operator op(type);
  op.Doc("A formula that is measured.");
  return op;
}

std::vector<TensorInfo> OneNumber(const ShapeQuery& query) {
  return {{.dtype = query.In(0).dtype, .shape = Shape({1})}};
}

Expr CheckedLabel(Formula& f) {
  const std::int64_t classes = f.ShapeOf("x")[-1];
  Expr label = Cast(DType::kInt64, f.Row("label"));
  f.Check(And(label >= 0, label < classes), "label {} is {}", Index(2), label);
  return label;
}

const Registration label_cross_entropy = Trial("bench.LabelCrossEntropy")
                                             .Input("x", "[N, D]")
                                             .Input("label", "[N]")
                                             .Output("y", "[N]")
                                             .Formula(
                                                 [](Formula& f) {
                                                   const Expr x = f.In("x");
                                                   const Expr of_label =
                                                       RowSum(Where(Equal(Index(3), CheckedLabel(f)), x, 0));
                                                   f.Out({OfRows(-Log(Max(of_label, kLeastProbability)))});
                                                 },
                                                 {.checks_values = true});

const Registration label_cross_entropy_gradient =
    Trial("bench.LabelCrossEntropyGradient")
        .Input("x", "[N, D]")
        .Input("label", "[N]")
        .Input("dy", "[N]")
        .Output("dx", "[N, D]")
        .Formula(
            [](Formula& f) {
              const Expr x = f.In("x");
              f.Out({Where(Equal(Index(3), CheckedLabel(f)), -f.Row("dy") / Max(x, kLeastProbability), 0)});
            },
            {.checks_values = true});

const Registration softmax_with_loss_gradient =
    Trial("bench.SoftmaxWithLossGradient")
        .Input("x", "[N, D]")
        .Input("label", "[N]")
        .Input("p", "[N, D]")
        .Input("dloss", "[1]")
        .Output("dx", "[N, D]")
        .Formula(
            [](Formula& f) {
              const Expr p = f.In("p");
              const Expr factor = Cast(p.dtype(), Cast(DType::kDouble, f.Scalar("dloss")) / f.ShapeOf("x")[0]);
              f.Out({Where(Equal(Index(3), CheckedLabel(f)), p - 1, p) * factor});
            },
            {.checks_values = true});

template <bool square>
void SumOfAll(Formula& f) {
  f.RowsFrom("x", 0);
  const Expr x = f.In("x");
  f.Out({OfRows(RowSum(square ? x * x : x))});
}
const Registration sum_elements =
    Trial("bench.SumElements").Input("x", "any shape").Output("y", "[1]").Shapes(OneNumber).Formula(SumOfAll<false>);
const Registration sum_sqr_elements =
    Trial("bench.SumSqrElements").Input("x", "any shape").Output("y", "[1]").Shapes(OneNumber).Formula(SumOfAll<true>);

// It is of numbers alone: NaN counts as none.
const Registration arg_max =
    Trial("bench.ArgMax")
        .Input("x", "[N, D]")
        .Output("y", "[N]")
        .Arg("axis", -1, "the last one")
        .Formula([](Formula& f) {
          const Expr x = f.In("x");
          const Expr is_max = Equal(x, RowMax(x));
          f.Out({OfRows(-RowMax(Where(is_max, -Index(3), std::numeric_limits<std::int64_t>::min())))});
        });

const Registration iter = Trial("bench.Iter")
                              .Input("iter", "[1]")
                              .Output("next", "[1]")
                              .InPlace({{0, 0}})
                              .Formula(
                                  [](Formula& f) {
                                    const Expr n = f.In("iter");
                                    f.Check(And(n >= 0, n < std::numeric_limits<std::int64_t>::max()), "it is {}", n);
                                    f.Out({n + 1});
                                  },
                                  {.checks_values = true});

const Registration learning_rate =
    Trial("bench.LearningRate")
        .Input("iter", "[1]")
        .Output("lr", "[1]")
        .RequiredArg("policy", ArgumentType::kString, "exp", OneOf({"exp"}))
        .Arg("base_lr", 0.0f, "as in LearningRate")
        .Arg("gamma", 0.0f, "as in LearningRate")
        .Arg("power", 0.0f, "not used")
        .Arg("stepsize", 0, "not used")
        .Arg("max_iter", 0, "not used")
        .Formula(
            [](Formula& f) {
              const Expr n = f.In("iter");
              f.Check(n >= 0, "it is {}", n);
              f.Out({Cast(DType::kFloat, f.Number("base_lr") * Pow(f.Number("gamma"), Cast(DType::kDouble, n)))});
            },
            {.checks_values = true});

void RepeatedSum(Formula& f) {
  const Shape& x = f.ShapeOf("x");
  f.Over(x);
  std::vector<int> kept;
  double n = 1;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_summed = i == f.Ints("axes")[0];
    if (!is_summed) kept.push_back(i);
    if (is_summed) n = static_cast<double>(x[i]);
  }
  const Expr dy = f.Along("dy", kept);
  f.Out({f.Bool("average") ? dy * (Expr::Constant(dy.dtype(), 1) / n) : dy});
}
Operator ReductionGradient(const char* type, bool average) {
  return std::move(Trial(type)
                       .Input("dy", "[…]")
                       .Input("x", "[…]")
                       .Input("y", "[…]")
                       .Output("dx", "the shape of x")
                       .Arg("axes", std::vector<std::int64_t>{}, "one")
                       .Arg("average", average, "of the type")
                       .Shapes([](const ShapeQuery& query) { return std::vector<TensorInfo>{query.In(1)}; })
                       .Formula(RepeatedSum));
}
const Registration reduce_sum_gradient = ReductionGradient("bench.ReduceSumGradient", false);
const Registration reduce_mean_gradient = ReductionGradient("bench.ReduceMeanGradient", true);

}  // namespace
}  // namespace stepnet
