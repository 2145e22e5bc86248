// Slice: y = x[start_0 : end_0, start_1 : end_1, …]; dimensions that are not named are whole.
// Negative starts and ends count from behind as in Caffe2, where -1 is the end itself and not the last element; ends
// beyond the size mean the size.
//
// These are no formulas: starts and ends may be values of inputs, and elements are of any type.
#include <algorithm>
#include <array>
#include <span>

#include "stepnet/core/expansion.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/input_checks.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

using Indices = std::array<std::int64_t, Shape::kMaxRank>;

// The part of a tensor that a slice is.
struct Box {
  Indices begin = {};
  Indices size = {};
};

void CheckNumberOfBounds(const Shape& x, std::int64_t starts, std::int64_t ends) {
  if (starts == ends && starts <= x.rank()) return;
  throw Error(ErrorCode::kShapeMismatch, StrCat("Slice is given ", starts, " starts and ", ends, " ends for a tensor ",
                                                x, "; needs as many ends as starts, one a dimension at most"));
}

Box BoxOf(const Shape& x, std::span<const std::int64_t> starts, std::span<const std::int64_t> ends) {
  CheckNumberOfBounds(x, std::ssize(starts), std::ssize(ends));
  Box box;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = x[i];
    box.size[i] = size;
    if (i >= static_cast<int>(starts.size()) || size == 0) continue;
    const auto resolve = [size](std::int64_t at) { return std::min(at < 0 ? at + size + 1 : at, size); };
    const std::int64_t begin = resolve(starts[i]);
    const std::int64_t end = resolve(ends[i]);
    if (begin < 0 || end < begin) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("Slice from ", starts[i], " to ", ends[i], " along dimension ", i,
                                                    " of a tensor ", x, " is no range"));
    }
    box.begin[i] = begin;
    box.size[i] = end - begin;
  }
  return box;
}

Shape ShapeOf(const Box& box, int rank) { return Shape(std::span(box.size.data(), static_cast<size_t>(rank))); }

// The starts (or ends) of one run: from an input where there is one, else from the argument.
class Bounds {
 public:
  Bounds(const std::vector<std::int64_t>& argument) : bounds_(argument) {}  // NOLINT(google-explicit-constructor)
  // REQUIRES: the shape rule has asked CheckNumberOfBounds.
  Bounds(const TensorView& tensor, const char* what) {
    ForIndexType(tensor.dtype, StrCat(what, " of Slice"), [&](auto zero) {
      const auto* data = tensor.As<decltype(zero)>();
      std::copy(data, data + tensor.size(), read_.begin());
    });
    bounds_ = std::span(read_.data(), static_cast<size_t>(tensor.size()));
  }
  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

  std::span<const std::int64_t> get() const { return bounds_; }

 private:
  Indices read_ = {};
  std::span<const std::int64_t> bounds_;
};

// Copies between a tensor and the slice that `box` cuts out of it.
class BoxCopy {
 public:
  BoxCopy(const TensorView& whole, const TensorView& part, const Box& box, bool to_part)
      : whole_(whole), part_(part), box_(box), to_part_(to_part) {
    const Shape& shape = *whole.shape;
    for (int i = 0; i < shape.rank(); ++i) {
      if (box.size[i] != shape[i]) inner_ = i;
    }
  }

  void Run() const {
    if (part_.size() == 0) return;
    if (whole_.rank() == 0) {
      CopyBlock(0, 0, 1, 1, 1, 1);
    } else if (inner_ == 0) {
      const std::int64_t row = whole_.shape->SizeFrom(1);
      CopyBlock(box_.begin[0] * row, 0, row, row, box_.size[0] * row, 1);
    } else {
      Descend(0, 0, 0);
    }
  }

 private:
  // Dimensions from inner_ on lie without gaps in both tensors; the one in front of it is the loop of CopyRuns.
  void Descend(int dim, std::int64_t whole_at, std::int64_t part_at) const {
    const std::int64_t whole_step = whole_.shape->SizeFrom(dim + 1);
    const std::int64_t part_step = part_.shape->SizeFrom(dim + 1);
    whole_at += box_.begin[dim] * whole_step;
    if (dim == inner_ - 1) {
      const std::int64_t row = whole_.shape->SizeFrom(inner_ + 1);
      CopyBlock(whole_at + box_.begin[inner_] * row, part_at, whole_step, part_step, box_.size[inner_] * row,
                box_.size[dim]);
      return;
    }
    for (std::int64_t i = 0; i < box_.size[dim]; ++i) {
      Descend(dim + 1, whole_at + i * whole_step, part_at + i * part_step);
    }
  }

  void CopyBlock(std::int64_t whole_at, std::int64_t part_at, std::int64_t whole_step, std::int64_t part_step,
                 std::int64_t length, std::int64_t rows) const {
    if (to_part_) {
      CopyRuns(part_.dtype, At(whole_, whole_at), whole_step, At(part_, part_at), part_step, length, rows);
    } else {
      CopyRuns(part_.dtype, At(part_, part_at), part_step, At(whole_, whole_at), whole_step, length, rows);
    }
  }

  const TensorView& whole_;
  const TensorView& part_;
  const Box& box_;
  bool to_part_;
  int inner_ = 0;  // the last dimension that is cut
};

void CheckBoundsGiven(const OperatorCall& op, int num_bound_inputs) {
  const bool has_arguments = op.HasArg("starts") || op.HasArg("ends");
  if (num_bound_inputs == 2 ? has_arguments : num_bound_inputs == 1 || !has_arguments) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(op.type(), " needs starts and ends, either both as arguments or both as inputs"));
  }
}

std::vector<TensorInfo> SliceShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  CheckBoundsGiven(op, query.num_inputs() - 1);
  const bool by_inputs = query.num_inputs() == 3;
  const Box box =
      by_inputs ? BoxOf(x.shape, query.IntsOf(1), query.IntsOf(2)) : BoxOf(x.shape, op.Ints("starts"), op.Ints("ends"));
  TensorInfo y{.dtype = x.dtype, .shape = ShapeOf(box, x.shape.rank())};
  if (HasKnownValue(query, 0)) {  // a size taken out of a shape
    y.value = Tensor(y.dtype, y.shape);
    const TensorView part = y.value.View();
    BoxCopy(x.value.View(), part, box, /*to_part=*/true).Run();
  }
  return {std::move(y)};
}

// Neighbouring dimensions of which the inner one is whole are one. Where more are left than a region has, nothing is
// said.
void ExpandSlice(Expansion& e) {
  if (e.num_inputs() == 3) return;
  const Shape& x = e.In(0).shape;
  const Box box = BoxOf(x, e.op().Ints("starts"), e.op().Ints("ends"));
  if (ShapeOf(box, x.rank()).size() == 0) return;
  RegionIndex sizes = {1, 1, 1, 1}, strides = {};
  int outermost = kRegionDims;
  std::int64_t first = 0, stride = 1;
  for (int d = x.rank() - 1; d >= 0; stride *= x[d--]) {
    first += box.begin[d] * stride;
    if (box.size[d] == 1) continue;
    if (outermost < kRegionDims && sizes[outermost] * strides[outermost] == stride) {
      sizes[outermost] *= box.size[d];
      continue;
    }
    if (outermost == 0) return;
    sizes[--outermost] = box.size[d];
    strides[outermost] = stride;
  }
  e.Permute(sizes, strides, first);
}

// Checks all of starts and ends that are inputs but their values, which are known when the kernel runs.
void CheckGradientOfBounds(const ShapeQuery& query, const TensorInfo& x, const TensorInfo& dy) {
  ForIndexType(query.In(1).dtype, "starts of Slice", [](auto) {});
  ForIndexType(query.In(2).dtype, "ends of Slice", [](auto) {});
  const std::int64_t count = query.In(1).shape.size();
  CheckNumberOfBounds(x.shape, count, query.In(2).shape.size());
  bool fits = dy.shape.rank() == x.shape.rank();
  for (int d = 0; fits && d < x.shape.rank(); ++d) {
    fits = d < count && x.shape[d] != 0 ? dy.shape[d] <= x.shape[d] : dy.shape[d] == x.shape[d];
  }
  if (fits) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("dy is ", dy.Description(), "; no slice of x, which is ", x.Description(), ", along the first ",
                     count, " dimensions is of this shape"));
}

std::vector<TensorInfo> SliceGradientShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  const TensorInfo& dy = query.In(query.num_inputs() - 1);
  CheckBoundsGiven(op, query.num_inputs() - 2);
  if (query.num_inputs() == 4) {
    CheckGradientOfBounds(query, x, dy);
    return {{.dtype = dy.dtype, .shape = x.shape}};
  }
  const Shape part = ShapeOf(BoxOf(x.shape, op.Ints("starts"), op.Ints("ends")), x.shape.rank());
  if (dy.shape != part) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("dy is ", dy.Description(), "; the slice of x, which is ", x.Description(), ", is ", part));
  }
  return {{.dtype = dy.dtype, .shape = x.shape}};
}

// Zeros where starts and ends do not fit, which is a fault of the run.
void RunSliceGradient(const OpRun& run, const Bounds& starts, const Bounds& ends) {
  const TensorView& dy = run.In(run.num_inputs() - 1);
  const TensorView& dx = run.Out(0);
  ClearElements(dx.dtype, At(dx, 0), dx.size());
  Box box;
  try {
    box = BoxOf(*dx.shape, starts.get(), ends.get());
    for (int d = 0; d < std::ssize(starts.get()); ++d) {
      if (box.size[d] == dy.dim(d)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("Slice from ", starts.get()[d], " to ", ends.get()[d], " along dimension ", d, " of a tensor ",
                         *dx.shape, " is not what dy ", *dy.shape, " is the gradient of"));
    }
  } catch (const Error& error) {
    return run.Fault(1, 0, [&](std::int64_t) { return Error(ErrorCode::kInvalidArgument, error.message()); });
  }
  BoxCopy(dx, dy, box, /*to_part=*/false).Run();
}

const Registration slice =
    Operator("Slice")
        .Doc(
            "A rectangular part of a tensor: y = x[start_0 : end_0, …]. Dimensions behind those named are whole. A "
            "negative start or end counts from behind, and -1 is the end itself: starts=[0], ends=[-1] takes all.")
        .Input("x", "any shape and dtype")
        .OptionalInput("starts", "int32 or int64 [dimensions to cut]")
        .OptionalInput("ends", "int32 or int64 [dimensions to cut]")
        .Output("y", "the rank of x")
        .Arg("starts", std::vector<std::int64_t>{}, "where there are no inputs starts and ends")
        .Arg("ends", std::vector<std::int64_t>{}, "where there are no inputs starts and ends")
        .ShapesReadValues({1, 2})
        .Check(CheckBy([](const OperatorCall& op) { CheckBoundsGiven(op, op.num_inputs() - 1); }))
        .Shapes(SliceShapes)
        .Expands(ExpandSlice)
        .Gradient([](GradientBuilder& g) {
          GradientOp op{.type = "SliceGradient", .inputs = g.op().inputs(), .outputs = {g.GI(0)}};
          op.inputs.push_back(g.GO(0));
          g.Add(std::move(op));
        })
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [starts = op.Ints("starts"), ends = op.Ints("ends")](const OpRun& run) {
            const auto copy = [&](const Bounds& from, const Bounds& to) {
              const Box box = BoxOf(*run.In(0).shape, from.get(), to.get());
              if (ShapeOf(box, run.In(0).rank()) != *run.Out(0).shape) {
                throw Error(ErrorCode::kInternal,
                            "the starts and ends of Slice changed after its shapes were inferred");
              }
              BoxCopy(run.In(0), run.Out(0), box, /*to_part=*/true).Run();
            };
            if (run.num_inputs() == 3) {
              const Bounds from(run.In(1), "starts");
              const Bounds to(run.In(2), "ends");
              copy(from, to);
            } else {
              copy(starts, ends);
            }
          };
        });

const Registration slice_gradient =
    Operator("SliceGradient")
        .Doc("dx = dy where Slice took elements of x, 0 elsewhere. Inputs: x, dy; or x, starts, ends, dy.")
        .Inputs("inputs", "x any shape, starts and ends as in Slice, dy the shape of y")
        .Output("dx", "the shape of x")
        .Arg("starts", std::vector<std::int64_t>{}, "as in Slice")
        .Arg("ends", std::vector<std::int64_t>{}, "as in Slice")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.num_inputs() != 2 && op.num_inputs() != 4) {
            problems->push_back({.message = StrCat("SliceGradient takes 2 or 4 inputs, has ", op.num_inputs())});
          } else {
            CheckBy([](const OperatorCall& slice) { CheckBoundsGiven(slice, slice.num_inputs() - 2); })(op, problems);
          }
        })
        .Shapes(SliceGradientShapes)
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [starts = op.Ints("starts"), ends = op.Ints("ends")](const OpRun& run) {
                  if (run.num_inputs() == 4) {
                    const Bounds from(run.In(1), "starts");
                    const Bounds to(run.In(2), "ends");
                    RunSliceGradient(run, from, to);
                  } else {
                    RunSliceGradient(run, starts, ends);
                  }
                };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
