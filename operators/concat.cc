// Concat joins tensors along one dimension, Split cuts one up. Concat is the gradient of Split; that of Concat cuts as
// Split does, and takes the sizes of the parts from the shapes of what was joined, which are known before it runs.
#include <span>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

constexpr const char* kAxisDoc = "dimension; negative counts from the end. Default: 1, or 3 where order is NHWC";
constexpr const char* kOrderDoc = "where axis is not given: NCHW stands for axis 1, NHWC for axis 3";

std::int64_t AxisArgument(const OperatorCall& op) {
  if (op.HasArg("axis")) return op.Int("axis");
  return op.String("order") == "NHWC" ? 3 : 1;
}

void CheckConcatInput(const ShapeQuery& query, int i, int axis, bool adds_axis) {
  const TensorInfo& first = query.In(0);
  const TensorInfo& other = query.In(i);
  const auto describe = [&](const char* rule) {
    return StrCat(InputText(query, 0), " and ", InputText(query, i), "; Concat needs inputs of one dtype", rule);
  };
  if (other.dtype != first.dtype) throw Error(ErrorCode::kTypeMismatch, describe(""));
  if (adds_axis) {
    if (other.shape != first.shape) throw Error(ErrorCode::kShapeMismatch, describe(" and, with add_axis, one shape"));
    return;
  }
  if (other.shape.rank() != first.shape.rank() || other.shape.With(axis, first.shape[axis]) != first.shape) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(describe(" that differ in size along one dimension only"), ", here dimension ", axis));
  }
}

// Where the shapes of the inputs themselves are concatenated (a target for Reshape, say), the result is known too.
Tensor KnownConcat(const ShapeQuery& query, const TensorInfo& result) {
  if (result.shape.rank() != 1 || result.shape.size() > kMaxKnownElements) return {};
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!HasKnownValue(query, i)) return {};
  }
  Tensor value(result.dtype, result.shape);
  std::int64_t at = 0;
  for (int i = 0; i < query.num_inputs(); ++i) {
    const Tensor& part = query.In(i).value;
    CopyElements(part.View(), value.Slice(at, at + part.size()).Reshaped(part.shape()).View());
    at += part.size();
  }
  return value;
}

std::vector<TensorInfo> ConcatShapes(const ShapeQuery& query) {
  const TensorInfo& first = query.In(0);
  const bool adds_axis = query.op().Bool("add_axis");
  const Shape with_axis = adds_axis ? first.shape.Inserted(0, 1) : first.shape;  // for its rank
  const int axis = with_axis.CanonicalAxis(AxisArgument(query.op()));
  std::vector<std::int64_t> sizes;
  std::int64_t total = 0;
  for (int i = 0; i < query.num_inputs(); ++i) {
    CheckConcatInput(query, i, axis, adds_axis);
    sizes.push_back(adds_axis ? 1 : query.In(i).shape[axis]);
    if (__builtin_add_overflow(total, sizes.back(), &total)) {
      throw Error(ErrorCode::kShapeMismatch, "the sizes that Concat adds up exceed 2^63");
    }
  }
  TensorInfo result{.dtype = first.dtype,
                    .shape = adds_axis ? first.shape.Inserted(axis, total) : first.shape.With(axis, total)};
  result.value = KnownConcat(query, result);
  return {std::move(result), KnownInts(DType::kInt32, sizes)};
}

void RunConcat(const OpRun& run, std::int64_t axis_argument, bool adds_axis) {
  const TensorView& out = run.Out(0);
  const int axis = out.shape->CanonicalAxis(axis_argument);
  std::int64_t at = 0;
  for (int i = 0; i < run.num_inputs(); ++i) {
    const TensorView& part = run.In(i);
    const std::int64_t length = part.shape->SizeFrom(axis);
    CopyRuns(out.dtype, At(part, 0), length, At(out, at), out.shape->SizeFrom(axis), length, out.shape->SizeTo(axis));
    at += length;
    run.Out(1).As<std::int32_t>()[i] = adds_axis ? 1 : static_cast<std::int32_t>(part.dim(axis));
  }
}

// The parts side by side, in each run of what lies from the axis on.
void ExpandConcat(Expansion& e) {
  const bool adds_axis = e.op().Bool("add_axis");
  const Shape& first = e.In(0).shape;
  const int axis = (adds_axis ? first.Inserted(0, 1) : first).CanonicalAxis(AxisArgument(e.op()));
  std::vector<std::int64_t> sizes;
  std::int64_t length = 0;  // of a run
  for (int i = 0; i < e.num_inputs(); ++i) {
    sizes.push_back(adds_axis ? 1 : e.In(i).shape[axis]);
    length += e.In(i).shape.SizeFrom(axis);
  }
  std::int64_t at = 0;
  for (int i = 0; i < e.num_inputs(); ++i) {
    const std::int64_t columns = e.In(i).shape.SizeFrom(axis);
    e.Copy(first.SizeTo(axis), columns, {.operand = i, .row_length = columns},
           {.operand = 0, .row_length = length, .first = at});
    at += columns;
  }
  e.Constants(1, DType::kInt32, sizes);
}

const Registration concat =
    Operator("Concat")
        .Doc("Joins tensors along a dimension: y[:, offset_i + j, :] = x_i[:, j, :].")
        .Inputs("x", "[…, A_i, …] of one dtype; with add_axis all of one shape")
        .Output("y", "[…, sum of A_i, …]; with add_axis [..., number of inputs, …]")
        .Output("split_info", "int32 [number of inputs]: the A_i, as Split takes them")
        .Arg("axis", 1, kAxisDoc)
        .Arg("order", "NCHW", kOrderDoc, OneOf({"NCHW", "NHWC"}))
        .Arg("add_axis", false, "join along a new dimension, which becomes dimension `axis` of y")
        .Arg("split", std::vector<std::int64_t>{}, "copied from Split to its gradient, where it is not needed")
        .Shapes(ConcatShapes)
        .Expands(ExpandConcat)
        .Gradient("ConcatGradient", {"dy", "x"}, {"dx"})
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [axis = AxisArgument(op), adds_axis = op.Bool("add_axis")](const OpRun& run) {
            RunConcat(run, axis, adds_axis);
          };
        });

void ExpectSizesOnce(const OperatorCall& op) {
  if (op.num_inputs() < 2 || op.Ints("split").empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "Split has its sizes both as an input and as the argument split");
}

// The sizes of the parts: given by an input, by the argument, or equal.
std::vector<std::int64_t> PartSizes(const ShapeQuery& query, int axis) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  const std::vector<std::int64_t>& argument = op.Ints("split");
  ExpectSizesOnce(op);
  if (query.num_inputs() > 1) return query.IntsOf(1);
  if (!argument.empty()) return argument;
  const std::int64_t parts = op.num_outputs();
  if (x.shape[axis] % parts != 0) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(InputText(query, 0), "; dimension ", axis, " cannot be split into ", parts, " equal parts"));
  }
  return std::vector<std::int64_t>(static_cast<size_t>(parts), x.shape[axis] / parts);
}

std::vector<TensorInfo> SplitShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  const int axis = x.shape.CanonicalAxis(AxisArgument(op));
  const bool drops_axis = op.Bool("add_axis");
  const std::vector<std::int64_t> sizes = PartSizes(query, axis);
  std::int64_t rest = x.shape[axis];
  bool fits = static_cast<int>(sizes.size()) == op.num_outputs();
  for (const std::int64_t size : sizes) {
    fits = fits && size >= 0 && size <= rest && (!drops_axis || size == 1);
    if (fits) rest -= size;
  }
  if (!fits || rest != 0) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("the sizes of the parts are [", Join(sizes, ", "), "]; Split needs ", op.num_outputs(), " sizes",
                       drops_axis ? " of 1" : "", " that add up to dimension ", axis, " of ", op.inputs()[0],
                       ", which is ", x.Description()));
  }
  std::vector<TensorInfo> parts;
  for (const std::int64_t size : sizes) {
    parts.push_back({.dtype = x.dtype, .shape = drops_axis ? x.shape.Without(axis) : x.shape.With(axis, size)});
  }
  return parts;
}

// Parts may lack the axis.
KernelFactory SplitKernel() {
  return [](const OperatorCall& op) -> RunFn {
    return [axis_argument = AxisArgument(op)](const OpRun& run) {
      const TensorView& x = run.In(0);
      const int axis = x.shape->CanonicalAxis(axis_argument);
      std::int64_t at = 0;
      for (const TensorView& part : run.outputs()) {
        const std::int64_t length = part.shape->SizeFrom(axis);
        CopyRuns(x.dtype, At(x, at), x.shape->SizeFrom(axis), At(part, 0), length, length, x.shape->SizeTo(axis));
        at += length;
      }
    };
  };
}

// Copies of the parts of operand 0.
void ExpandParts(Expansion& e, std::span<const TensorInfo> parts) {
  const Shape& x = e.In(0).shape;
  const int axis = x.CanonicalAxis(AxisArgument(e.op()));
  std::int64_t at = 0;
  for (int o = 0; o < static_cast<int>(parts.size()); ++o) {
    const std::int64_t length = parts[o].shape.SizeFrom(axis);
    e.Copy(x.SizeTo(axis), length, {.operand = 0, .row_length = x.SizeFrom(axis), .first = at},
           {.operand = o, .row_length = length});
    at += length;
  }
}

// Where the sizes are values of an input they may be others in each run.
void ExpandSplit(Expansion& e) {
  if (!e.outputs().empty()) return ExpandParts(e, e.outputs());
  if (e.num_inputs() == 1) ExpandParts(e, SplitShapes(e.query()));
}

// A part that nothing differentiates has a gradient of zeros; leaving it out would shift the parts behind it.
void SplitGradient(GradientBuilder& g) {
  GradientOp concat{.type = "Concat", .inputs = {}, .outputs = {}};
  for (int o = 0; o < g.op().num_outputs(); ++o) {
    if (g.HasGO(o)) {
      concat.inputs.push_back(g.GO(o));
      continue;
    }
    const std::string zeros = "_" + g.O(o) + "_zero_grad";
    g.Add({.type = "ConstantFill",
           .inputs = {g.O(o)},
           .outputs = {zeros},
           .arguments = {{"value", {.f = 0.0f}}},
           .copies_arguments = false});
    concat.inputs.push_back(zeros);
  }
  const std::string dx = g.GI(0);
  concat.outputs = {dx, "_" + dx + "_dims"};
  g.Add(std::move(concat));
}

// Sizes that an input holds are not known where plans ask.
std::optional<RowOperands> SplitRows(const ShapeQuery& query) {
  if (query.num_inputs() > 1 || query.In(0).shape.CanonicalAxis(AxisArgument(query.op())) == 0) return {};
  RowOperands rows{.inputs = {0}, .outputs = {}};
  for (int o = 0; o < query.op().num_outputs(); ++o) rows.outputs.push_back(o);
  return rows;
}

const Registration split =
    Operator("Split")
        .Doc("Cuts a tensor into parts along a dimension: y_i[:, j, :] = x[:, offset_i + j, :].")
        .Input("x", "[…, A, …]")
        .OptionalInput("sizes", "int32 or int64 [number of outputs]: sizes of the parts, as Concat writes them")
        .Outputs("y", "[…, A_i, …]; the A_i are `sizes` or `split` or equal, and add up to A")
        .Arg("axis", 1, kAxisDoc)
        .Arg("order", "NCHW", kOrderDoc, OneOf({"NCHW", "NHWC"}))
        .Arg("add_axis", false, "the parts are of size 1 and have no dimension `axis`")
        .Arg("split", std::vector<std::int64_t>{}, "sizes of the parts", AtLeast(0))
        .ShapesReadValues({1})
        .Check(CheckBy(ExpectSizesOnce))
        .Shapes(SplitShapes)
        .Rows(SplitRows)
        .Expands(ExpandSplit)
        .Gradient(SplitGradient)
        .Cpu(SplitKernel());

// The gradients of what was joined have its shapes.
std::vector<TensorInfo> ConcatGradientShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& dy = query.In(0);
  const int axis = dy.shape.CanonicalAxis(AxisArgument(op));
  const bool drops_axis = op.Bool("add_axis");
  std::vector<TensorInfo> parts;
  std::int64_t total = 0;
  for (int i = 1; i < query.num_inputs(); ++i) {
    const Shape& x = query.In(i).shape;
    const Shape whole = drops_axis ? x.Inserted(axis, 1) : x;
    const bool fits = whole.rank() == dy.shape.rank() && whole.With(axis, dy.shape[axis]) == dy.shape;
    if (!fits || __builtin_add_overflow(total, whole[axis], &total)) total = -1;
    if (total < 0) break;
    parts.push_back({.dtype = dy.dtype, .shape = x});
  }
  if (total == dy.shape[axis] && op.num_outputs() == query.num_inputs() - 1) return parts;
  throw WrongInputs(query, {0}, "needs the gradient of what Concat makes of its other inputs, and an output for each");
}

const Registration concat_gradient =
    GradientOf("Concat", "dx_i is the part of dy that x_i became. Elements of x are not read.")
        .ReadsShapes({1})
        .Shapes(ConcatGradientShapes)
        .Expands([](Expansion& e) { ExpandParts(e, ConcatGradientShapes(e.query())); })
        .Gradient(SplitGradient)
        .Cpu(SplitKernel());

}  // namespace
}  // namespace stepnet
