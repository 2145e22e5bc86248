// Where: z = x where the condition holds, y elsewhere.
#include <algorithm>
#include <climits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/target.h"
#include "stepnet/operators/broadcast.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

bool IsPrefix(const Shape& shape, const Shape& of) {
  if (shape.rank() > of.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != of[i]) return false;
  }
  return true;
}

void ExpectCondition(const ShapeQuery& query) {
  if (query.In(0).dtype == DType::kBool) return;
  throw WrongInputs(query, {0}, "needs a condition of type bool", ErrorCode::kTypeMismatch);
}

// Throws unless the condition, input 0, is of the first dimensions of input 1.
void ExpectConditionOfRows(const ShapeQuery& query) {
  if (IsPrefix(query.In(0).shape, query.In(1).shape)) return;
  throw WrongInputs(query, {0, 1}, "needs a condition of the first dimensions of its other inputs");
}

std::vector<TensorInfo> WhereShapes(const ShapeQuery& query) {
  ExpectCondition(query);
  const TensorInfo &x = query.In(1), &y = query.In(2);
  if (query.op().Bool("broadcast_on_rows")) {
    ExpectAlike(query, 1, 2);
    ExpectConditionOfRows(query);
    return {{.dtype = x.dtype, .shape = x.shape}};
  }
  ExpectSameType(query, 1, 2);
  const Shape shape = RepeatedShape(query);
  const bool is_repeated = !(query.In(0).shape == shape && x.shape == shape && y.shape == shape);
  if (is_repeated && !IsOperandType(x.dtype)) {
    throw WrongInputs(query, {0, 1, 2}, StrCat("repeats no ", DTypeName(x.dtype)), ErrorCode::kTypeMismatch);
  }
  return {{.dtype = x.dtype, .shape = shape}};
}

void CheckWhereGradient(const ShapeQuery& query) {
  ExpectCondition(query);
  if (query.op().Bool("broadcast_on_rows")) {
    ExpectConditionOfRows(query);
  } else {
    CheckRepeated(query, {}, 1, 0);
  }
}

// Where rows are chosen nothing is repeated, nor is an input that the output overwrites.
void WhereGradientRule(GradientBuilder& g) {
  const OperatorCall& op = g.op();
  const auto may_be_repeated = [&](int i) {
    return !op.Bool("broadcast_on_rows") && op.inputs()[i] != op.outputs()[0] && MayBeRepeated(g, i);
  };
  const auto unreduced = [&](int i) { return may_be_repeated(i) ? UnreducedGradient(g, i) : g.GI(i); };
  g.Add({.type = "WhereGradient", .inputs = {g.I(0), g.GO(0)}, .outputs = {unreduced(1), unreduced(2)}});
  for (const int i : {1, 2}) {
    if (may_be_repeated(i)) ReduceGradient(g, i);
  }
}

// What decides about an element of `input`, or about its row.
Expr Condition(Formula& f, const char* input) {
  if (!f.Bool("broadcast_on_rows")) return f.In("condition");
  f.RowsFrom(input, f.ShapeOf("condition").rank());
  return f.Row("condition");
}

// Calls fn(whether the condition, input 0, holds, first element, the one past the last) for each run of elements of `x`
// that an element of it decides about.
template <typename Fn>
void ForRuns(const OpRun& run, const TensorView& x, const Fn& fn) {
  const TensorView& condition = run.In(0);
  const std::int64_t length = condition.size() == 0 ? 0 : x.size() / condition.size();
  const auto [begin, end] = run.Share(condition.size());
  for (std::int64_t n = begin; n < end; ++n) {
    CountWork(length);
    fn(condition.As<bool>()[n], n * length, (n + 1) * length);
  }
}

void ChooseRuns(const OpRun& run) {
  ForDType(run.Out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *x = run.In(1).As<T>(), *y = run.In(2).As<T>();
    T* z = run.Out(0).As<T>();
    ForRuns(run, run.Out(0), [&](bool holds, std::int64_t begin, std::int64_t end) {
      const T* chosen = holds ? x : y;
      if (end - begin >= kCpuTarget.min_run_for_call) {
        std::copy(chosen + begin, chosen + end, z + begin);
        return;
      }
      for (std::int64_t i = begin; i < end; ++i) z[i] = chosen[i];
    });
  });
}

void SplitRuns(const OpRun& run) {
  ForDType(run.Out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dz = run.In(1).As<T>();
    T *dx = run.Out(0).As<T>(), *dy = run.Out(1).As<T>();
    ForRuns(run, run.In(1), [&](bool holds, std::int64_t begin, std::int64_t end) {
      T *to = holds ? dx : dy, *other = holds ? dy : dx;
      if (end - begin >= kCpuTarget.min_run_for_call) {
        std::copy(dz + begin, dz + end, to + begin);
        std::fill(other + begin, other + end, zero);
        return;
      }
      for (std::int64_t i = begin; i < end; ++i) {
        to[i] = dz[i];
        other[i] = zero;
      }
    });
  });
}

// Runs are copied in half the time in which the formula chooses elements.
Kernel FormulaOrRuns(RunFn of_runs) {
  Kernel kernel = FormulaKernelOr([of_runs](const OperatorCall&) { return of_runs; });
  kernel.max_parts = [of_elements = std::move(kernel.max_parts)](const ShapeQuery& query,
                                                                 std::span<const TensorInfo> outputs) {
    if (!query.op().Bool("broadcast_on_rows")) return of_elements(query, outputs);
    return static_cast<int>(std::clamp<std::int64_t>(query.In(0).shape.size(), 1, INT_MAX));
  };
  kernel.make = [of_elements = std::move(kernel.make), of_runs](const OperatorCall& op) {
    return op.Bool("broadcast_on_rows") ? of_runs : of_elements(op);
  };
  return kernel;
}

const Registration where =
    Operator("Where")
        .Doc("z = x where the condition holds, y elsewhere.")
        .Input("condition", "bool; with broadcast_on_rows the first dimensions of x: [N], [T, B]")
        .Input("x", "any type; with broadcast_on_rows [N, …]")
        .Input("y", "the type of x; with broadcast_on_rows its shape, too")
        .Output("z", "the shape that all inputs are repeated to, by shape as NumPy does it; the type of x")
        .Arg("broadcast_on_rows", false, "an element of the condition decides about a row")
        .InPlace({{1, 0}, {2, 0}})
        .Shapes(WhereShapes)
        .Gradient(WhereGradientRule)
        .Formula([](Formula& f) {
          const Expr condition = Condition(f, "x");
          f.Out({Where(condition, f.In("x"), f.In("y"))});
        })
        .Cpu(FormulaOrRuns(ChooseRuns));

// By hand, because x and y are not given: what decides about rows is read over the shape of dz.
const Registration where_gradient =
    Operator("WhereGradient")
        .Doc("dx = dz where the condition holds and 0 elsewhere; dy = dz where it does not.")
        .Input("condition", "as in Where")
        .Input("dz", OfTypes({DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16}, "the shape of z"))
        .Output("dx", Like("dz"))
        .Output("dy", Like("dz"))
        .Arg("broadcast_on_rows", false, "as in Where")
        .CheckShapes(CheckWhereGradient)
        .Formula([](Formula& f) {
          const Expr condition = Condition(f, "dz");
          const Expr dz = f.In("dz");
          f.Out({Where(condition, dz, 0), Where(condition, 0, dz)});
        })
        .Cpu(FormulaOrRuns(SplitRuns));

}  // namespace
}  // namespace stepnet
