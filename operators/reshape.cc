// Operators that give the elements of a tensor another shape: Reshape, Squeeze, ExpandDims, Flatten, FlattenToVec,
// ResizeLike. They take any type, and so are no formulas, which have no strings.
#include <algorithm>

#include "stepnet/core/expansion.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

Error CannotReshape(const ShapeQuery& query, const std::vector<std::int64_t>& sizes, const char* why) {
  return Error(ErrorCode::kShapeMismatch,
               StrCat(InputText(query, 0), " and cannot be reshaped to [", Join(sizes, ", "), "]: ", why));
}

// The shape that `sizes` asks for, in which 0 is a size.
Shape Literal(const ShapeQuery& query, const std::vector<std::int64_t>& sizes) {
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) {
    throw CannotReshape(query, sizes, "a size is negative, and another one is 0");
  }
  const Shape shape(sizes);
  if (shape.size() != query.In(0).shape.size()) throw CannotReshape(query, sizes, "the numbers of elements differ");
  return shape;
}

// The shape that `sizes` asks for: 0 is the size that x has in this place, one -1 is whatever is left.
Shape Resolve(const ShapeQuery& query, const std::vector<std::int64_t>& sizes) {
  const Shape& x = query.In(0).shape;
  // Sizes kept by a 0 cancel out, so that -1 has a meaning in tensors without elements too.
  std::vector<std::int64_t> resolved = sizes;
  std::vector<std::int64_t> left_of_x = x.ToVector();
  std::vector<std::int64_t> left_of_y;
  int unknown = -1;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    if (sizes[i] == -1) {
      if (unknown >= 0) throw CannotReshape(query, sizes, "more than one size is -1");
      unknown = i;
    } else if (sizes[i] < 0) {
      throw CannotReshape(query, sizes, "a size is negative");
    } else if (sizes[i] > 0) {
      left_of_y.push_back(sizes[i]);
    } else if (i >= x.rank()) {
      throw CannotReshape(query, sizes, "a size of 0 keeps a dimension, and there is none in this place");
    } else {
      resolved[i] = x[i];
      left_of_x[i] = 1;
    }
  }
  const std::int64_t from = Shape(left_of_x).size();
  const std::int64_t to = Shape(left_of_y).size();
  if (unknown >= 0) {
    if (from % to != 0) throw CannotReshape(query, sizes, "the number of elements is no multiple of the sizes given");
    resolved[unknown] = from / to;
  }
  const Shape shape(resolved);
  if (shape.size() != x.size()) throw CannotReshape(query, sizes, "the numbers of elements differ");
  return shape;
}

std::vector<TensorInfo> ReshapeShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  if (op.HasArg("shape") == (query.num_inputs() > 1)) {
    throw Error(ErrorCode::kInvalidArgument, "Reshape needs the new shape either as an argument or as an input");
  }
  const auto with_old_shape = [&](const Shape& shape, DType dtype) {
    std::vector<TensorInfo> outputs = {{.dtype = x.dtype, .shape = shape}};
    if (op.num_outputs() > 1) outputs.push_back(KnownInts(dtype, x.shape.ToVector()));
    return outputs;
  };
  const bool is_argument = query.num_inputs() == 1;
  const std::vector<std::int64_t> sizes = is_argument ? op.Ints("shape") : query.IntsOf(1);
  const bool has_zero = std::ranges::find(sizes, 0) != sizes.end();
  // A shape that another operator recorded may hold sizes that are 0.
  const bool may_be_recorded = !is_argument && x.shape.size() == 0 && std::ranges::find(sizes, -1) == sizes.end();
  const bool is_literal = op.HasArg("allowzero") ? op.Bool("allowzero") : may_be_recorded;
  const Shape shape = is_literal && has_zero ? Literal(query, sizes) : Resolve(query, sizes);
  return with_old_shape(shape, is_argument ? DType::kInt64 : query.In(1).dtype);
}

// In place, the input keeps the shape that it had before while the kernel runs.
void RunReshape(const OpRun& run) {
  CopyInput(run);
  if (run.num_outputs() == 1) return;
  const std::vector<std::int64_t> old_shape = run.In(0).shape->ToVector();
  ForIndexType(run.Out(1).dtype, "old_shape of Reshape", [&](auto zero) {
    using T = decltype(zero);
    if (run.context().queue == nullptr) {
      std::ranges::transform(old_shape, run.Out(1).As<T>(), [](std::int64_t size) { return static_cast<T>(size); });
    } else {
      const std::vector<T> sizes(old_shape.begin(), old_shape.end());
      run.queue().CopyFromHost(sizes.data(), run.Out(1).data, run.Out(1).size_bytes());
    }
  });
}

void ExpandReshape(Expansion& e) {
  ExpandCopy(e);
  if (e.op().num_outputs() > 1)
    e.Constants(1, e.num_inputs() > 1 ? e.In(1).dtype : DType::kInt64, e.In(0).shape.ToVector());
}

// Reads the shape of x, which is gone where an operator works in place.
void AddResizeLikeGradient(GradientBuilder& g) {
  g.Add({.type = "ResizeLike", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(0)}, .copies_arguments = false});
}

const Registration reshape =
    Operator("Reshape")
        .Doc(
            "The elements of x under another shape. In the new shape 0 keeps the size that x has in this place, and "
            "one size may be -1: whatever is left.")
        .Input("x", "any shape and dtype")
        .OptionalInput("new_shape",
                       "int32 or int64 [rank of y], instead of the argument shape; where x has no elements and no size "
                       "is -1, a 0 is one of 0 elements")
        .Output("y", "the new shape")
        .OptionalOutput("old_shape", "[rank of x], the shape of x: int64, or of the dtype of new_shape")
        .Arg("shape", std::vector<std::int64_t>{}, "the new shape", AtLeast(-1))
        .Arg("allowzero", false,
             "0 is a size, and keeps none. Where nothing is said, so it is in new_shape where x has no elements and no "
             "size is -1, as a shape that an operator recorded may have it")
        .ShapesReadValues({1})
        .Shapes(ReshapeShapes)
        .InPlace({{0, 0}})
        .Expands(ExpandReshape)
        .Gradient([](GradientBuilder& g) {
          // Steps need not keep what nobody has asked for.
          if (g.op().num_outputs() == 1) return AddResizeLikeGradient(g);
          const std::string dx = g.GI(0);
          g.Add({.type = "Reshape",
                 .inputs = {g.GO(0), g.O(1)},
                 .outputs = {dx, "_" + dx + "_dims"},
                 .copies_arguments = false});
        })
        .OnEveryDevice({.make = [](const OperatorCall&) -> RunFn { return RunReshape; }});

// An operator that gives the elements another shape and does nothing else, so that it becomes part of the regions
// around it.
Operator Reshaping(const char* type, const char* doc, const char* x, const char* y, ShapeRule shapes) {
  Operator op(type);
  op.Doc(doc).Input("x", x).Output("y", y).Shapes(std::move(shapes)).Expands(ExpandCopy).OnEveryDevice(CopyKernel());
  return op;
}

void SortOnce(std::vector<std::int64_t>* dims) {
  std::ranges::sort(*dims);
  dims->erase(std::unique(dims->begin(), dims->end()), dims->end());
}

// The argument dims of a tensor of this rank, ascending and without repetition; negative ones count from the end.
std::vector<std::int64_t> DimsArgument(const ShapeQuery& query, std::int64_t rank) {
  std::vector<std::int64_t> dims = query.op().Ints("dims");
  for (std::int64_t& dim : dims) {
    if (dim < -rank) throw WrongInputs(query, {0}, StrCat("has no dimension ", dim, " of ", rank));
    if (dim < 0) dim += rank;
  }
  SortOnce(&dims);
  return dims;
}

// Where the first dimension stays. `rank`: of the tensor that has the dimensions.
std::optional<RowOperands> RowsBesideDims(const ShapeQuery& query, std::int64_t rank) {
  if (query.In(0).shape.rank() == 0 || std::ranges::count(DimsArgument(query, rank), 0) > 0) return {};
  return RowOperands{.inputs = {0}, .outputs = {0}};
}

void CheckDimsGiven(const OperatorCall& op, std::vector<NetProblem>* problems) {
  if (op.Ints("dims").empty()) problems->push_back({.message = op.type() + " needs at least one dimension in dims"});
}

std::vector<TensorInfo> SqueezeShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const std::vector<std::int64_t> dims = DimsArgument(query, x.shape.rank());
  std::vector<std::int64_t> sizes = x.shape.ToVector();
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (*dim >= x.shape.rank() || x.shape[static_cast<int>(*dim)] != 1) {
      throw WrongInputs(query, {0}, StrCat("needs a dimension ", *dim, " of size 1"));
    }
    sizes.erase(sizes.begin() + *dim);
  }
  return {{.dtype = x.dtype, .shape = Shape(sizes)}};
}

std::vector<TensorInfo> ExpandDimsShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  std::vector<std::int64_t> sizes = x.shape.ToVector();
  std::vector<std::int64_t> written = query.op().Ints("dims");
  SortOnce(&written);
  for (const std::int64_t dim : DimsArgument(query, x.shape.rank() + std::ssize(written))) {
    if (dim > static_cast<std::int64_t>(sizes.size())) {
      throw WrongInputs(query, {0}, StrCat("cannot add a dimension ", dim, " to ", sizes.size()));
    }
    sizes.insert(sizes.begin() + dim, 1);
  }
  return {{.dtype = x.dtype, .shape = Shape(sizes)}};
}

const Registration squeeze =
    Reshaping("Squeeze", "Removes dimensions of size 1.", "any shape and dtype, of size 1 in dims",
              "the shape of x without dims", SqueezeShapes)
        .RequiredArg("dims", ArgumentType::kInts, "dimensions of x to remove; negative counts from the end")
        .Rows([](const ShapeQuery& query) { return RowsBesideDims(query, query.In(0).shape.rank()); })
        .Check(CheckDimsGiven)
        .InPlace({{0, 0}})
        .Gradient("ExpandDims", {"dy"}, {"dx"});

const Registration expand_dims =
    Reshaping("ExpandDims", "Adds dimensions of size 1.", "any shape and dtype",
              "the shape of x with a 1 at each of dims", ExpandDimsShapes)
        .RequiredArg("dims", ArgumentType::kInts, "dimensions of y that are new; negative counts from the end")
        .Rows([](const ShapeQuery& query) { return RowsBesideDims(query, ExpandDimsShapes(query)[0].shape.rank()); })
        .Check(CheckDimsGiven)
        .InPlace({{0, 0}})
        .Gradient("Squeeze", {"dy"}, {"dx"});

std::vector<TensorInfo> FlattenShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  const std::int64_t axis = query.op().Int("axis");
  if (axis > x.shape.rank()) {
    throw WrongInputs(query, {0}, StrCat("with axis ", axis, " needs that many dimensions"));
  }
  const int split = static_cast<int>(axis);
  return {{.dtype = x.dtype, .shape = Shape({x.shape.SizeTo(split), x.shape.SizeFrom(split)})}};
}

std::vector<TensorInfo> ResizeLikeShapes(const ShapeQuery& query) {
  const TensorInfo &x = query.In(0), &like = query.In(1);
  if (x.shape.size() == like.shape.size()) return {{.dtype = x.dtype, .shape = like.shape}};
  throw WrongInputs(query, {0, 1}, "needs as many elements in both");
}

const Registration flatten =
    Reshaping("Flatten", "A matrix of the elements of x: dimensions before `axis` become rows, the others columns.",
              "[A_0, …, A_n], any dtype", "[A_0 * … * A_(axis-1), A_axis * … * A_n]", FlattenShapes)
        .Arg("axis", 1, "0 to the rank of x", AtLeast(0))
        .Gradient(AddResizeLikeGradient);

const Registration flatten_to_vec =
    Reshaping("FlattenToVec", "The elements of x in one dimension.", "any shape and dtype", "[number of elements]",
              [](const ShapeQuery& query) -> std::vector<TensorInfo> {
                return {{.dtype = query.In(0).dtype, .shape = Shape({query.In(0).shape.size()})}};
              })
        .Gradient(AddResizeLikeGradient);

const Registration resize_like = Reshaping("ResizeLike", "The elements of x under the shape of another tensor.",
                                           "any shape and dtype", "the shape of like", ResizeLikeShapes)
                                     .Input("like", "as many elements as x; only its shape matters")
                                     .ReadsShapes({1})
                                     .Gradient(AddResizeLikeGradient);

}  // namespace
}  // namespace stepnet
