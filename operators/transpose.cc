// Transpose: y[i_axes0, i_axes1, …] = x[i_0, i_1, …].
#include <algorithm>
#include <array>
#include <span>

#include "stepnet/core/expansion.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/products/transpose_matrix.h"

namespace stepnet {
namespace {

// Where there is no argument, dimensions are reversed.
std::vector<int> AxesFor(const Shape& x, const std::vector<std::int64_t>& argument) {
  std::vector<int> axes(argument.begin(), argument.end());
  if (argument.empty()) {
    for (int i = x.rank(); i > 0; --i) axes.push_back(i - 1);
  }
  return axes;
}

std::vector<TensorInfo> TransposeShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const std::vector<std::int64_t>& argument = query.op().Ints("axes");
  if (!argument.empty() && static_cast<int>(argument.size()) != x.shape.rank()) {
    throw Error(ErrorCode::kShapeMismatch, StrCat(InputText(query, 0), "; Transpose with axes [", Join(argument, ", "),
                                                  "] needs ", argument.size(), " dimensions"));
  }
  std::vector<std::int64_t> sizes;
  for (const int axis : AxesFor(x.shape, argument)) sizes.push_back(x.shape[axis]);
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

// A dimension of y, with the distance in x of its elements.
struct Dim {
  std::int64_t size;
  std::int64_t stride;
};

// The dimensions of y, those of size 1 dropped and those that stay neighbours merged.
struct Dims {
  std::array<Dim, Shape::kMaxRank> dims;
  int rank = 0;
};

Dims MergedDims(const Shape& x, const std::vector<std::int64_t>& argument) {
  Dims merged;
  for (int i = 0; i < x.rank(); ++i) {
    const int axis = argument.empty() ? x.rank() - 1 - i : static_cast<int>(argument[static_cast<size_t>(i)]);
    const Dim dim{.size = x[axis], .stride = x.SizeFrom(axis + 1)};
    if (dim.size == 1) continue;
    Dim* last = merged.rank > 0 ? &merged.dims[merged.rank - 1] : nullptr;
    if (last != nullptr && last->stride == dim.size * dim.stride) {
      *last = {.size = last->size * dim.size, .stride = dim.stride};
    } else {
      merged.dims[merged.rank++] = dim;
    }
  }
  return merged;
}

// Writes the part of y under dimension `level`, which leaves out `plane`: the dimension that is innermost in x, and not
// in y.
template <typename T>
void TransposeFrom(const Dims& dims, int level, int plane, const T* x, T* y, const std::int64_t* steps) {
  const int last = dims.rank - 1;
  if (level == plane) return TransposeFrom(dims, level + 1, plane, x, y, steps);
  if (level == last) {
    const auto [rows, stride] = dims.dims[last];
    TransposeMatrix(rows, dims.dims[plane].size, x, stride, y, steps[plane]);
    return;
  }
  const Dim& dim = dims.dims[level];
  for (std::int64_t i = 0; i < dim.size; ++i) {
    TransposeFrom(dims, level + 1, plane, x + i * dim.stride, y + i * steps[level], steps);
  }
}

template <typename T>
void MoveElements(const Dims& dims, const TensorView& x, const TensorView& y, const std::int64_t* steps) {
  int plane = 0;
  for (int i = 0; i < dims.rank; ++i) {
    if (dims.dims[i].stride == 1) plane = i;
  }
  TransposeFrom(dims, 0, plane, static_cast<const T*>(x.data), static_cast<T*>(y.data), steps);
}

void RunTranspose(const OpRun& run, const std::vector<std::int64_t>& axes) {
  const TensorView& x = run.In(0);
  const TensorView& y = run.Out(0);
  if (x.size() == 0) return;
  const Dims dims = MergedDims(*x.shape, axes);
  if (dims.rank <= 1) return CopyElements(x, y);
  std::array<std::int64_t, Shape::kMaxRank> steps;
  std::int64_t step = 1;
  for (int i = dims.rank - 1; i >= 0; --i) {
    steps[i] = step;
    step *= dims.dims[i].size;
  }
  if (dims.dims[dims.rank - 1].stride == 1) {  // whole runs move
    std::array<BoxDim, Shape::kMaxRank> box;
    for (int i = 0; i < dims.rank; ++i) box[i] = {dims.dims[i].size, dims.dims[i].stride, steps[i]};
    return CopyBox(x.dtype, std::span(box).first(dims.rank), At(x, 0), At(y, 0));
  }
  if (x.dtype == DType::kString) return MoveElements<std::string>(dims, x, y, steps.data());
  switch (DTypeBytes(x.dtype)) {
    case 1: return MoveElements<std::uint8_t>(dims, x, y, steps.data());
    case 2: return MoveElements<std::uint16_t>(dims, x, y, steps.data());
    case 4: return MoveElements<std::uint32_t>(dims, x, y, steps.data());
    default: return MoveElements<std::uint64_t>(dims, x, y, steps.data());
  }
}

// Says nothing where there are more dimensions than a region has.
void ExpandTranspose(Expansion& e) {
  const Dims dims = MergedDims(e.In(0).shape, e.op().Ints("axes"));
  if (dims.rank > kRegionDims) return;
  RegionIndex sizes = {1, 1, 1, 1}, strides = {};
  for (int d = 0; d < dims.rank; ++d) {
    sizes[kRegionDims - dims.rank + d] = dims.dims[d].size;
    strides[kRegionDims - dims.rank + d] = dims.dims[d].stride;
  }
  e.Permute(sizes, strides);
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
