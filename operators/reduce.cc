// ReduceSum, ReduceMean: sums and averages over any dimensions. Over the last ones they are formulas, of rows, so that
// they are part of the region of what is around them, as in an RMS norm; the kernel gives the same bits, and stays
// because it is as fast for all dimensions, where choosing between both would take longer than summing 64 elements.
// Their gradients are no formulas: they repeat along any number of dimensions, and fill what a region would compute in
// blocks and copy from there.
//
// ReduceMax, ReduceMin, ReduceL1, ReduceL2 are formulas alone, over the last dimensions, which a Transpose puts there.
#include <algorithm>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/operators/dim_groups.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

SummedDims ReducedDims(const std::vector<std::int64_t>& axes, const Shape& x) {
  SummedDims reduced = {};
  for (int i = 0; i < x.rank(); ++i) reduced[i] = axes.empty();
  for (const std::int64_t axis : axes) reduced[x.CanonicalAxis(axis, "axes")] = true;
  return reduced;
}

// The first dimension that is reduced; the rank of x where none is.
int FirstReduced(const std::vector<std::int64_t>& axes, const Shape& x) {
  const SummedDims reduced = ReducedDims(axes, x);
  return static_cast<int>(std::find(reduced.begin(), reduced.begin() + x.rank(), true) - reduced.begin());
}

// Whether the last dimensions are reduced, and no others: rows.
bool AreRowsReduced(const OperatorCall& op, DType /*dtype*/, const Shape& x) {
  const SummedDims reduced = ReducedDims(op.Ints("axes"), x);
  return std::is_sorted(reduced.begin(), reduced.begin() + x.rank()) && (x.rank() == 0 || reduced[x.rank() - 1]);
}

FormulaRule SumOfRow(bool average) {
  return [average](Formula& f) {
    const std::int64_t n = f.RowsFrom("x", FirstReduced(f.Ints("axes"), f.ShapeOf("x")));
    const Expr sum = RowSum(f.In("x"));
    f.Out({OfRows(average && n > 0 ? sum * (Expr::Constant(f.TypeOf("x"), 1) / n) : sum)});
  };
}

DimGroups GroupsOf(const std::vector<std::int64_t>& axes, const Shape& x) { return GroupDims(x, ReducedDims(axes, x)); }

template <typename T>
void Reduce(const OpRun& run, const DimGroups& groups, bool average) {
  T* out = run.Out(0).As<T>();
  const std::int64_t n = run.Out(0).size();
  if (run.In(0).size() == 0) {
    std::fill_n(out, n, T{0});
    return;
  }
  if (groups.count <= 2 && (groups.count == 0 || groups.summed[groups.count - 1])) {
    SumRows(run.In(0).As<T>(), out, n, groups.summed_size);
  } else {
    SumGroups(run, groups, run.In(0).As<T>(), out);
  }
  if (!average) return;
  Scale(n, out, AverageFactor<T>(average, groups.summed_size), out);
}

// Says nothing where there are no elements.
void ExpandGradient(Expansion& e, bool average) {
  const DimGroups groups = GroupsOf(e.op().Ints("axes"), e.In(1).shape);
  if (e.In(1).shape.size() == 0) return;
  std::vector<StridedDim> dims(groups.count);
  std::int64_t stride = 1;
  for (int g = groups.count - 1; g >= 0; --g) {
    dims[g] = {.size = groups.sizes[g], .stride = groups.summed[g] ? 0 : stride};
    if (!groups.summed[g]) stride *= groups.sizes[g];
  }
  const bool is_float = e.In(0).dtype == DType::kFloat;
  const std::int64_t n = groups.summed_size;
  e.Permute(dims, 0, is_float ? AverageFactor<float>(average, n) : AverageFactor<double>(average, n));
}

// Writes dy, repeated over the groups that were summed.
void Repeat(const DimGroups& groups, const TensorView& dx, const std::byte* dy) {
  std::array<BoxDim, Shape::kMaxRank> box;
  std::int64_t from_step = 1, to_step = 1;
  for (int g = groups.count - 1; g >= 0; --g) {
    box[g] = {.size = groups.sizes[g], .from_step = groups.summed[g] ? 0 : from_step, .to_step = to_step};
    to_step *= groups.sizes[g];
    if (!groups.summed[g]) from_step *= groups.sizes[g];
  }
  CopyBox(dx.dtype, std::span(box).first(groups.count), dy, At(dx, 0));
}

// The shape of y.
std::vector<TensorInfo> ReducedShape(const ShapeQuery& query) {
  ExpectFloat(query, 0);
  const auto& [dtype, x, value] = query.In(0);
  const SummedDims reduced = ReducedDims(query.op().Ints("axes"), x);
  Shape y = x;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (reduced[i]) y = query.op().Bool("keepdims") ? y.With(i, 1) : y.Without(i);
  }
  return {{.dtype = dtype, .shape = y}};
}

// What all of them declare; the rest is up to the caller.
Operator Reduction(const std::string& type, const std::string& doc, const std::string& x) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", x)
      .Output("y", "the shape of x with the reduced dimensions 1, or without them")
      .Arg("axes", std::vector<std::int64_t>{}, "the dimensions that are reduced, negative from the end; none: all")
      .Arg("keepdims", true, "reduced dimensions stay, with size 1");
  return op;
}

Operator SumOrMean(const std::string& type, const std::string& doc, bool average) {
  Operator op = Reduction(type, doc, "any shape; in 16 bits the last dimensions alone are reduced");
  op.Shapes([](const ShapeQuery& query) {
      const DType dtype = query.In(0).dtype;
      if (IsStoredFloat(dtype) && !AreRowsReduced(query.op(), dtype, query.In(0).shape)) {
        throw WrongInputs(query, {0}, StrCat("in ", dtype, " reduces the last dimensions alone"),
                          ErrorCode::kTypeMismatch);
      }
      return ReducedShape(query);
    })
      .Gradient(type + "Gradient", {"dy", "x", "y"}, {"dx"})
      .Expands([average](Expansion& e) {
        if (IsStoredFloat(e.In(0).dtype)) return;
        const DimGroups groups = GroupsOf(e.op().Ints("axes"), e.In(0).shape);
        e.Sum(0, SumOf(0, groups, AverageFactor<double>(average, groups.summed_size)));
      })
      .Formula(FormulaWhere{AreRowsReduced, SumOfRow(average)})
      .Cpu(KernelOrFormula({.make = [average](const OperatorCall& op) {
        return FloatKernel(op, [average, axes = op.Ints("axes")]<typename T>(const OpRun& run) {
          Reduce<T>(run, GroupsOf(axes, *run.In(0).shape), average);
        });
      }}));
  return op;
}

Operator SumOrMeanGradient(const std::string& type, const std::string& doc, bool average) {
  Operator op = GradientOf(type, doc + " Elements of x and y are not read.");
  op.ReadsShapes({1, 2})
      .CheckShapes([](const ShapeQuery& query) {
        ExpectFloats(query);
        const DimGroups groups = GroupsOf(query.op().Ints("axes"), query.In(1).shape);
        std::int64_t size = 1;
        for (int g = 0; g < groups.count; ++g) size *= groups.summed[g] ? 1 : groups.sizes[g];
        if (query.In(0).shape.size() == size) return;
        throw WrongInputs(query, {0, 1}, StrCat("needs a dy of ", size, " elements"));
      })
      .Expands([average](Expansion& e) { ExpandGradient(e, average); })
      .Cpu([average](const OperatorCall& op) {
        return FloatKernel(op, [average, axes = op.Ints("axes")]<typename T>(const OpRun& run) {
          if (run.Out(0).size() == 0) return;
          const DimGroups groups = GroupsOf(axes, *run.In(1).shape);
          const TensorView& dy = run.In(0);
          const std::byte* from = At(dy, 0);
          if (average) {
            T* const scaled = run.ScratchOf<T>(dy.size());
            Scale(dy.size(), dy.As<T>(), AverageFactor<T>(average, groups.summed_size), scaled);
            from = reinterpret_cast<const std::byte*>(scaled);
          }
          Repeat(groups, run.Out(0), from);
        });
      });
  return op;
}

const Registration reduce_sum = SumOrMean("ReduceSum", "Sums over dimensions.", /*average=*/false);
const Registration reduce_sum_gradient =
    SumOrMeanGradient("ReduceSum", "dx = dy, repeated over the reduced dimensions.", /*average=*/false);
const Registration reduce_mean =
    SumOrMean("ReduceMean", "Averages over dimensions; 0 where there is nothing to average.", /*average=*/true);
const Registration reduce_mean_gradient =
    SumOrMeanGradient("ReduceMean", "dx = dy / n, repeated over the n elements that were averaged.", /*average=*/true);

// One element for each row of x, which the dimensions from the first reduced one on are.
Operator OfEachRow(const std::string& type, const std::string& doc, Expr (*of_row)(const Expr& x)) {
  Operator op = Reduction(type, doc, "any shape; its last dimensions alone are reduced");
  op.Shapes([](const ShapeQuery& query) {
      const std::vector<TensorInfo> y = ReducedShape(query);
      if (!AreRowsReduced(query.op(), query.In(0).dtype, query.In(0).shape)) {
        throw WrongInputs(query, {0},
                          StrCat("reduces the last dimensions alone, and axes are ",
                                 Join(query.op().Ints("axes"), ", "), "; Transpose puts others there"),
                          ErrorCode::kInvalidArgument);
      }
      return y;
    }).Formula([of_row](Formula& f) {
    f.RowsFrom("x", FirstReduced(f.Ints("axes"), f.ShapeOf("x")));
    f.Out({OfRows(of_row(f.In("x")))});
  });
  return op;
}

const Registration reduce_max =
    OfEachRow("ReduceMax", "The greatest element over dimensions; NaN where one is NaN, -infinity of none.", RowMax)
        .DerivedGradient({"x", "y", "dy"}, {"dx"},
                         "dx = dy where x is the greatest, also where several are; 0 elsewhere.");
const Registration reduce_min =
    OfEachRow("ReduceMin", "The least element over dimensions; NaN where one is NaN, infinity of none.",
              [](const Expr& x) { return -RowMax(-x); })
        .DerivedGradient({"x", "y", "dy"}, {"dx"},
                         "dx = dy where x is the least, also where several are; 0 elsewhere.");
const Registration reduce_l1 =
    OfEachRow("ReduceL1", "The sum of the magnitudes over dimensions.", [](const Expr& x) {
      return RowSum(Abs(x));
    }).DerivedGradient({"x", "dy"}, {"dx"}, "dx = dy where x > 0, -dy where x < 0, 0 where x is 0.");

// Its derivative at 0, which a square root does not have, is 0.
const Registration reduce_l2 =
    OfEachRow("ReduceL2", "The root of the sum of the squares over dimensions: the length of a vector.",
              [](const Expr& x) { return Sqrt(RowSum(x * x)); })
        .Gradient("ReduceL2Gradient", {"x", "y", "dy"}, {"dx"});
const Registration reduce_l2_gradient =
    GradientOf("ReduceL2", "dx = dy x / y, and 0 where y is 0.").Formula([](Formula& f) {
      f.RowsFrom("x", FirstReduced(f.Ints("axes"), f.ShapeOf("x")));
      const Expr y = f.Row("y");
      f.Out({f.In("x") * Where(Equal(y, 0), 0, f.Row("dy") / y)});
    });

}  // namespace
}  // namespace stepnet
