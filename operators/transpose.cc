// Transpose: y[i_axes0, i_axes1, …] = x[i_0, i_1, …].
#include <algorithm>
#include <array>
#include <span>

#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {
namespace {

// The dimension of x that is dimension i of y; where axes name none, they are reversed.
int AxisOf(const Shape& x, const std::vector<std::int64_t>& axes, int i) {
  return axes.empty() ? x.rank() - 1 - i : static_cast<int>(axes[static_cast<size_t>(i)]);
}

std::vector<TensorInfo> TransposeShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const std::vector<std::int64_t>& argument = query.op().Ints("axes");
  if (!argument.empty() && static_cast<int>(argument.size()) != x.shape.rank()) {
    throw WrongInputs(query, {0},
                      StrCat("with axes [", Join(argument, ", "), "] needs ", argument.size(), " dimensions"));
  }
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < x.shape.rank(); ++i) sizes.push_back(x.shape[AxisOf(x.shape, argument, i)]);
  return {{.dtype = x.dtype, .shape = Shape(sizes)}};
}

// axes must hold each of 0, 1, …, n-1 once.
void CheckAxes(const OperatorCall& op, std::vector<NetProblem>* problems) {
  const std::vector<std::int64_t>& axes = op.Ints("axes");
  std::vector<std::int64_t> sorted = axes;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] == static_cast<std::int64_t>(i)) continue;
    problems->push_back(
        {.message = StrCat("axes is [", Join(axes, ", "), "], must hold each of 0 to ", axes.size() - 1, " once")});
    return;
  }
}

void RunTranspose(const OpRun& run, const std::vector<std::int64_t>& axes) {
  const TensorView& x = run.In(0);
  std::array<BoxDim, Shape::kMaxRank> box;
  std::int64_t step = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    const int axis = AxisOf(*x.shape, axes, i);
    box[i] = {.size = x.dim(axis), .from_step = x.shape->SizeFrom(axis + 1), .to_step = step};
    step *= x.dim(axis);
  }
  CopyBox(x.dtype, std::span(box).first(x.rank()), At(x, 0), At(run.Out(0), 0));
}

void ExpandTranspose(Expansion& e) {
  const Shape& x = e.In(0).shape;
  std::vector<StridedDim> dims;
  for (int i = 0; i < x.rank(); ++i) {
    const int axis = AxisOf(x, e.op().Ints("axes"), i);
    dims.push_back({.size = x[axis], .stride = x.SizeFrom(axis + 1)});
  }
  e.Permute(dims);
}

const Registration transpose = Operator("Transpose")
                                   .Doc("Reorders dimensions: dimension i of y is dimension axes[i] of x.")
                                   .Input("x", "any shape and dtype")
                                   .Output("y", "the sizes of x in the order of axes")
                                   .Arg("axes", std::vector<std::int64_t>{},
                                        "a dimension of x for each of y. Default: those of x, reversed", AtLeast(0))
                                   .Check(CheckAxes)
                                   .Shapes(TransposeShapes)
                                   .Expands(ExpandTranspose)
                                   .Gradient([](GradientBuilder& g) {
                                     const std::vector<std::int64_t>& axes = g.op().Ints("axes");
                                     std::vector<std::int64_t> inverse(axes.size());
                                     for (size_t i = 0; i < axes.size(); ++i)
                                       inverse[static_cast<size_t>(axes[i])] = static_cast<std::int64_t>(i);
                                     GradientOp op{.type = "Transpose", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}};
                                     if (!axes.empty()) op.arguments["axes"] = {.ints = inverse};
                                     g.Add(std::move(op));
                                   })
                                   .Cpu([](const OperatorCall& op) -> RunFn {
                                     return [axes = op.Ints("axes")](const OpRun& run) { RunTranspose(run, axes); };
                                   });

}  // namespace
}  // namespace stepnet
