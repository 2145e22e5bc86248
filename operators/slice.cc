// Slice: y = x[start_0 : end_0, start_1 : end_1, …]; dimensions that are not named are whole.
// Negative starts and ends count from behind as in Caffe2, where -1 is the end itself and not the last element; ends
// beyond the size mean the size. With steps they are ONNX's, which are Python's but for one case.
//
// These are no formulas: starts and ends may be values of inputs, and elements are of any type.
#include <algorithm>
#include <array>
#include <span>

#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

using Indices = std::array<std::int64_t, Shape::kMaxRank>;

// The part of a tensor that a slice is.
struct Box {
  Indices begin = {};
  Indices size = {};
  Indices step = {};
};

// What starts and ends are where they are no inputs, and steps.
struct SliceArguments {
  explicit SliceArguments(const OperatorCall& op)
      : starts(op.Ints("starts")), ends(op.Ints("ends")), steps(op.Ints("steps")) {}
  std::vector<std::int64_t> starts, ends, steps;
};

void CheckNumberOfBounds(const Shape& x, std::int64_t starts, std::int64_t ends, std::int64_t steps) {
  if (starts != ends || starts > x.rank()) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("Slice is given ", starts, " starts and ", ends, " ends for a tensor ", x,
                       "; needs as many ends as starts, one a dimension at most"));
  }
  if (steps != 0 && steps != starts) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("Slice is given ", starts, " starts and ", steps,
                                                  " steps; needs a step for each start, or no steps"));
  }
}

// By Caffe2's bounds: negative ones count from behind the end, and what is no range is an error.
void CutRange(const Shape& x, int d, std::int64_t start, std::int64_t end, Box* box) {
  const std::int64_t size = x[d];
  const auto resolve = [size](std::int64_t at) { return std::min(at < 0 ? at + size + 1 : at, size); };
  const std::int64_t first = resolve(start), past = resolve(end);
  if (first < 0 || past < first) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("Slice from ", start, " to ", end, " along dimension ", d, " of a tensor ", x, " is no range"));
  }
  box->begin[d] = first;
  box->size[d] = past - first;
}

// By ONNX's bounds: those beyond the tensor are its first or last element, and any of them are a range.
void CutSteps(std::int64_t size, std::int64_t start, std::int64_t end, std::int64_t step, int d, Box* box) {
  const std::int64_t highest = step > 0 ? size : size - 1;
  const auto resolve = [&](std::int64_t at, std::int64_t lowest) {
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  const std::int64_t first = resolve(start, 0), past = resolve(end, step > 0 ? 0 : -1);
  const bool is_empty = step > 0 ? past <= first : past >= first;
  box->size[d] = is_empty ? 0 : 1 + (past - first - (step > 0 ? 1 : -1)) / step;
  if (box->size[d] > 0) box->begin[d] = first;
  if (box->size[d] > 1) box->step[d] = step;  // otherwise it may be any number
}

Box BoxOf(const Shape& x, std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
          std::span<const std::int64_t> steps) {
  CheckNumberOfBounds(x, std::ssize(starts), std::ssize(ends), std::ssize(steps));
  Box box;
  box.step.fill(1);
  for (int i = 0; i < x.rank(); ++i) {
    box.size[i] = x[i];
    if (i >= static_cast<int>(starts.size()) || x[i] == 0) continue;
    if (steps.empty()) {
      CutRange(x, i, starts[i], ends[i], &box);
    } else {
      CutSteps(x[i], starts[i], ends[i], steps[i], i, &box);
    }
  }
  return box;
}

Box BoxOf(const Shape& x, const SliceArguments& given) { return BoxOf(x, given.starts, given.ends, given.steps); }

Shape ShapeOf(const Box& box, int rank) { return Shape(std::span(box.size.data(), static_cast<size_t>(rank))); }

// Calls fn(starts, ends) with those of a run: inputs 1 and 2, or the arguments. REQUIRES: the shape rule has asked
// CheckNumberOfBounds.
template <typename Fn>
void WithBounds(const OpRun& run, bool are_inputs, const SliceArguments& arguments, const Fn& fn) {
  if (!are_inputs) return fn(std::span(arguments.starts), std::span(arguments.ends));
  Indices starts = {}, ends = {};
  const auto read = [&](int input, Indices* to) {
    const TensorView& bounds = run.In(input);
    for (std::int64_t i = 0; i < bounds.size(); ++i) (*to)[i] = IntAt(bounds, i);
    return std::span<const std::int64_t>(to->data(), static_cast<size_t>(bounds.size()));
  };
  fn(read(1, &starts), read(2, &ends));
}

// Copies between a tensor and the slice that `box` cuts out of it.
void CopySlice(const TensorView& whole, const TensorView& part, const Box& box, bool to_part) {
  if (part.size() == 0) return;
  std::array<BoxDim, Shape::kMaxRank> dims;
  std::int64_t first = 0, whole_step = 1, part_step = 1;
  for (int i = whole.rank() - 1; i >= 0; --i) {
    const std::int64_t size = box.size[i], in_whole = box.step[i] * whole_step;
    dims[i] = {.size = size, .from_step = to_part ? in_whole : part_step, .to_step = to_part ? part_step : in_whole};
    first += box.begin[i] * whole_step;
    whole_step *= whole.dim(i);
    part_step *= size;
  }
  const std::byte* const from = to_part ? At(whole, first) : At(part, 0);
  CopyBox(part.dtype, std::span(dims).first(whole.rank()), from, to_part ? At(part, 0) : At(whole, first));
}

void CheckBoundsGiven(const OperatorCall& op, int num_bound_inputs) {
  const bool has_arguments = op.HasArg("starts") || op.HasArg("ends");
  if (num_bound_inputs == 2 ? has_arguments : num_bound_inputs == 1 || !has_arguments) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(op.type(), " needs starts and ends, either both as arguments or both as inputs"));
  }
  if (std::ranges::count(op.Ints("steps"), 0) > 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has a step of 0"));
  }
}

std::vector<TensorInfo> SliceShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  CheckBoundsGiven(op, query.num_inputs() - 1);
  const bool by_inputs = query.num_inputs() == 3;
  const Box box = by_inputs ? BoxOf(x.shape, query.IntsOf(1), query.IntsOf(2), op.Ints("steps"))
                            : BoxOf(x.shape, SliceArguments(op));
  TensorInfo y{.dtype = x.dtype, .shape = ShapeOf(box, x.shape.rank())};
  if (HasKnownValue(query, 0)) {  // a size taken out of a shape
    y.value = Tensor(y.dtype, y.shape);
    CopySlice(x.value.View(), y.value.View(), box, /*to_part=*/true);
  }
  return {std::move(y)};
}

// Says nothing where there are no elements, and of steps back, which strides of regions are not.
void ExpandSlice(Expansion& e) {
  if (e.num_inputs() == 3) return;
  const Shape& x = e.In(0).shape;
  const Box box = BoxOf(x, SliceArguments(e.op()));
  if (ShapeOf(box, x.rank()).size() == 0 || std::ranges::min(box.step) < 0) return;
  std::vector<StridedDim> dims;
  std::int64_t first = 0;
  for (int d = 0; d < x.rank(); ++d) {
    dims.push_back({.size = box.size[d], .stride = box.step[d] * x.SizeFrom(d + 1)});
    first += box.begin[d] * x.SizeFrom(d + 1);
  }
  e.Permute(dims, first);
}

// Says nothing where elements lie between those that the slice took.
void ExpandSliceGradient(Expansion& e) {
  if (e.num_inputs() == 4) return;
  const Shape& x = e.In(0).shape;
  const Box box = BoxOf(x, SliceArguments(e.op()));
  std::vector<PlacedDim> dims;
  for (int d = 0; d < x.rank(); ++d) {
    if (box.step[d] != 1) return;
    dims.push_back({.whole = x[d], .begin = box.begin[d], .size = box.size[d]});
  }
  e.Place(1, dims);
}

// Checks all of starts and ends that are inputs but their values, which are known when the kernel runs.
void CheckGradientOfBounds(const ShapeQuery& query, const TensorInfo& x, const TensorInfo& dy) {
  ForIndexType(query.In(1).dtype, "starts of Slice", [](auto) {});
  ForIndexType(query.In(2).dtype, "ends of Slice", [](auto) {});
  const std::int64_t count = query.In(1).shape.size();
  CheckNumberOfBounds(x.shape, count, query.In(2).shape.size(), std::ssize(query.op().Ints("steps")));
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
  const Shape part = ShapeOf(BoxOf(x.shape, SliceArguments(op)), x.shape.rank());
  if (dy.shape != part) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("dy is ", dy.Description(), "; the slice of x, which is ", x.Description(), ", is ", part));
  }
  return {{.dtype = dy.dtype, .shape = x.shape}};
}

// Zeros where starts and ends do not fit, which is a fault of the run.
void RunSliceGradient(const OpRun& run, std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                      std::span<const std::int64_t> steps) {
  const TensorView& dy = run.In(run.num_inputs() - 1);
  const TensorView& dx = run.Out(0);
  ClearElements(dx.dtype, At(dx, 0), dx.size());
  Box box;
  try {
    box = BoxOf(*dx.shape, starts, ends, steps);
    for (int d = 0; d < std::ssize(starts); ++d) {
      if (box.size[d] == dy.dim(d)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("Slice from ", starts[d], " to ", ends[d], " along dimension ", d, " of a tensor ", *dx.shape,
                         " is not what dy ", *dy.shape, " is the gradient of"));
    }
  } catch (const Error& error) {
    return run.Fault(1, 0, [&](std::int64_t) { return Error(ErrorCode::kInvalidArgument, error.message()); });
  }
  CopySlice(dx, dy, box, /*to_part=*/false);
}

const Registration slice =
    Operator("Slice")
        .Doc(
            "A rectangular part of a tensor: y = x[start_0 : end_0, …]. Dimensions behind those named are whole. A "
            "negative start or end counts from behind, and -1 is the end itself: starts=[0], ends=[-1] takes all. With "
            "steps they are ONNX's, Python's x[start:end:step]: -1 is the last element, what lies beyond the tensor is "
            "its first or last element (of Python a negative step from before the first takes nothing, here that one), "
            "and a slice may take nothing.")
        .Input("x", "any shape and dtype")
        .OptionalInput("starts", "int32 or int64 [dimensions to cut]")
        .OptionalInput("ends", "int32 or int64 [dimensions to cut]")
        .Output("y", "the rank of x")
        .Arg("starts", std::vector<std::int64_t>{}, "where there are no inputs starts and ends")
        .Arg("ends", std::vector<std::int64_t>{}, "where there are no inputs starts and ends")
        .Arg("steps", std::vector<std::int64_t>{}, "one for each start, negative ones take elements backward")
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
          return [arguments = SliceArguments(op)](const OpRun& run) {
            WithBounds(run, run.num_inputs() == 3, arguments, [&](auto starts, auto ends) {
              const Box box = BoxOf(*run.In(0).shape, starts, ends, arguments.steps);
              if (ShapeOf(box, run.In(0).rank()) != *run.Out(0).shape) {
                throw Error(ErrorCode::kInternal,
                            "the starts and ends of Slice changed after its shapes were inferred");
              }
              CopySlice(run.In(0), run.Out(0), box, /*to_part=*/true);
            });
          };
        });

const Registration slice_gradient =
    Operator("SliceGradient")
        .Doc("dx = dy where Slice took elements of x, 0 elsewhere. Inputs: x, dy; or x, starts, ends, dy.")
        .Inputs("inputs", "x any shape, starts and ends as in Slice, dy the shape of y")
        .Output("dx", "the shape of x")
        .Arg("starts", std::vector<std::int64_t>{}, "as in Slice")
        .Arg("ends", std::vector<std::int64_t>{}, "as in Slice")
        .Arg("steps", std::vector<std::int64_t>{}, "as in Slice")
        .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
          if (op.num_inputs() != 2 && op.num_inputs() != 4) {
            problems->push_back({.message = StrCat("SliceGradient takes 2 or 4 inputs, has ", op.num_inputs())});
          } else {
            CheckBy([](const OperatorCall& slice) { CheckBoundsGiven(slice, slice.num_inputs() - 2); })(op, problems);
          }
        })
        .Shapes(SliceGradientShapes)
        .Expands(ExpandSliceGradient)
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [arguments = SliceArguments(op)](const OpRun& run) {
                  WithBounds(run, run.num_inputs() == 4, arguments,
                             [&](auto starts, auto ends) { RunSliceGradient(run, starts, ends, arguments.steps); });
                };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
