#include "stepnet/operators/fill.h"

#include "stepnet/core/floating.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {

Operator FillOperator(std::string type, const char* file) {
  return Operator(std::move(type), file)
      .OptionalInput("like", "gives the shape: its own or, with input_as_shape, its elements (int32 or int64 [rank])")
      .Output("y", "[shape…], or the shape that like gives and then [extra_shape…]")
      .Arg("shape", std::vector<std::int64_t>{}, "the shape, where there is no input; none: a scalar", AtLeast(0))
      .Arg("extra_shape", std::vector<std::int64_t>{}, "sizes to come after those of the input", AtLeast(0))
      .Arg("input_as_shape", false, "the elements of the input are the shape")
      .Arg("run_once", true, "written by old files; the operator runs whenever its net does")
      .ShapesReadValues({0})
      .StopsGradient();
}

Operator FloatFillOperator(std::string type, int min_rank, const char* file) {
  Operator op = FillOperator(std::move(type), file);
  op.Check(CheckFill).Shapes([min_rank](const ShapeQuery& query) -> std::vector<TensorInfo> {
    TensorInfo y{.dtype = FillDType(query, DType::kFloat), .shape = FillShape(query)};
    if (!IsFloatOrDouble(y.dtype)) {
      throw Error(ErrorCode::kTypeMismatch, StrCat(query.op().type(), " makes float or double, not ", y.dtype));
    }
    if (y.shape.rank() < min_rank) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat(query.op().type(), " needs a shape of at least ", min_rank, " dimensions, has ", y.shape));
    }
    return {std::move(y)};
  });
  return DTypeArg(op, "1 float, 13 double. Default: that of an input of float or double whose shape y takes, or float");
}

Operator& DTypeArg(Operator& op, const char* doc) { return op.Arg("dtype", 0, doc, AtLeast(1)); }

namespace {

// Throws kInvalidArgument for arguments that do not go together, with or without an input.
void ExpectOneShape(const OperatorCall& op) {
  const auto check = [&](bool right, const char* rule) {
    if (!right) throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), rule));
  };
  if (op.num_inputs() == 0) {
    check(op.Ints("extra_shape").empty(), " has extra_shape, which needs an input");
    check(!op.Bool("input_as_shape"), " has input_as_shape, which needs an input");
  } else {
    check(op.Ints("shape").empty(), " has its shape both as an argument and as an input");
  }
}

}  // namespace

Shape FillShape(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  ExpectOneShape(op);
  if (query.num_inputs() == 0) return Shape(op.Ints("shape"));
  std::vector<std::int64_t> sizes;
  if (!op.Bool("input_as_shape")) {
    sizes = query.In(0).shape.ToVector();
  } else {
    if (query.In(0).shape.rank() != 1) {
      throw WrongInputs(query, {0}, "with input_as_shape needs sizes [rank]");
    }
    sizes = query.IntsOf(0);
  }
  const std::vector<std::int64_t>& extra = op.Ints("extra_shape");
  sizes.insert(sizes.end(), extra.begin(), extra.end());
  return Shape(sizes);
}

DType FillDType(const ShapeQuery& query, DType otherwise) {
  const OperatorCall& op = query.op();
  if (op.HasArg("dtype")) return DTypeOfCode(op.Int("dtype"), "dtype");
  if (query.num_inputs() == 0 || op.Bool("input_as_shape")) return otherwise;
  const DType dtype = query.In(0).dtype;
  return IsFloatOrDouble(dtype) ? dtype : otherwise;
}

void CheckFill(const OperatorCall& op, std::vector<NetProblem>* problems) {
  CheckBy([](const OperatorCall& fill) {
    if (fill.num_inputs() == 0) {
      fill.schema().shapes(ShapeQuery(fill, {}));
      return;
    }
    ExpectOneShape(fill);
    const bool takes_dtype = fill.schema().FindArgument("dtype") != nullptr;
    if (takes_dtype && fill.HasArg("dtype")) DTypeOfCode(fill.Int("dtype"), "dtype");
  })(op, problems);
}

}  // namespace stepnet
