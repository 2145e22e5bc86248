// SumElements: y = sum(x), one number. SumSqrElements: y = sum(x^2). With average=1 divided by the number of elements.
#include <algorithm>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

// AverageFactor in formulas of x, whose elements all are one row.
Expr Factor(Formula& f) {
  const DType dtype = f.TypeOf("x");
  const std::int64_t elements = f.RowsFrom("x", 0);
  if (!f.Bool("average") || elements == 0) return Expr::Constant(dtype, 1);
  return Expr::Constant(dtype, 1) / elements;
}

// For 16 bits alone: floats are for kernels and, on a GPU, for many blocks at once, where a row is one block's.
template <auto term>
void SumOfStored(Formula& f) {
  const Expr factor = Factor(f);
  f.Out({OfRows(RowSum(term(f.In("x"))) * factor)});
}

Operator Total(const std::string& type, const std::string& doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", OfFloats("any shape"))
      .Output("y", "[], one element")
      .Arg("average", false, "1: divides by the number of elements (0 where there are none)")
      .Shapes(
          [](const ShapeQuery& query) { return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = {}}}; })
      .CostIs([](const ShapeQuery& query, std::span<const TensorInfo> outputs) -> Cost {
        return {.flops = static_cast<double>(query.In(0).shape.size()), .bytes = BytesMoved(query, outputs)};
      });
  return op;
}

const Registration sum_elements =
    Total("SumElements", "The sum of all elements.")
        .Gradient("SumElementsGradient", {"x", "dy"}, {"dx"})
        .Expands([](Expansion& e) {
          if (IsStoredFloat(e.In(0).dtype)) return;
          const std::int64_t n = e.In(0).shape.size();
          const bool average = e.op().Bool("average");
          e.Sum(0, {.sizes = {n}, .summed = {true}, .factor = AverageFactor<double>(average, n)});
        })
        .Formula(FormulaWhere{AppliesToStored, SumOfStored<[](const Expr& x) { return x; }>})
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) {
          return FloatKernel(op, [average = op.Bool("average")]<typename T>(const OpRun& run) {
            const std::int64_t n = run.In(0).size();
            T* y = run.Out(0).As<T>();
            *y = 0;
            if (n > 0) SumRows(run.In(0).As<T>(), y, 1, n);
            *y *= AverageFactor<T>(average, n);
          });
        }}));

// By hand, because a derivative follows from a formula, and floats, which a kernel sums, have none.
const Registration sum_elements_gradient =
    GradientOf("SumElements", "Every element of dx is dy; with average=1 dy / N.").Formula([](Formula& f) {
      f.Out({f.Scalar("dy") * Factor(f)});
    });

// RowSum of x * x.
template <typename T>
T SumOfSquares(const T* x, std::int64_t n) {
  constexpr DType kDType = kDTypeOf<T>;
  T sum;
  if (n <= kWorkOfBlock) {
    CountWork(n);
    SumOfProductsKernelOf(kDType, kDType)(&sum, x, x, {}, 1, n);
    return sum;
  }
  constexpr std::int64_t kBlock = 1024;  // in the first cache; a multiple of kRowPartials
  const RegionKernel multiply = KernelOf(ExprOp::kMultiply, kDType, kDType);
  const RowKernel add = RowKernelOf(ExprOp::kRowSum, kDType);
  T partial[kRowPartials], squares[kBlock];
  StartRow(ExprOp::kRowSum, kDType, partial);
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(n - begin, kBlock);
    CountWork(count);
    multiply(squares, x + begin, x + begin, nullptr, nullptr, count);
    add(partial, squares, count);
  }
  FinishRow(ExprOp::kRowSum, kDType, partial, &sum);
  return sum;
}

const Registration sum_sqr_elements =
    Total("SumSqrElements", "The sum of the squares of all elements.")
        .Gradient("SumSqrElementsGradient", {"x", "dy"}, {"dx"})
        .Formula(FormulaWhere{AppliesToStored, SumOfStored<[](const Expr& x) { return x * x; }>})
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) {
          return FloatKernel(op, [average = op.Bool("average")]<typename T>(const OpRun& run) {
            const std::int64_t n = run.In(0).size();
            *run.Out(0).As<T>() = SumOfSquares(run.In(0).As<T>(), n) * AverageFactor<T>(average, n);
          });
        }}));

const Registration sum_sqr_elements_gradient =
    GradientOf("SumSqrElements", "dx = 2 * x * dy; with average=1 divided by N.")
        .Formula([](Formula& f) {
          const Expr factor = 2 * f.Scalar("dy") * Factor(f);
          f.Out({f.In("x") * factor});
        })
        // By hand, because a product with one number takes a third of the time of instructions on blocks.
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) {
          return FloatKernel(op, [average = op.Bool("average")]<typename T>(const OpRun& run) {
            const std::int64_t n = run.Out(0).size();
            Scale(n, run.In(0).As<T>(), 2 * *run.In(1).As<T>() * AverageFactor<T>(average, n), run.Out(0).As<T>());
          });
        }}));

}  // namespace
}  // namespace stepnet
