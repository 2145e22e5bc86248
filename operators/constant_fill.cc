// ConstantFill and the GivenTensor…Fill family: tensors whose elements stand in the net.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/fill.h"
#include "stepnet/operators/known_value.h"

namespace stepnet {
namespace {

// A number in the file is a float or an int64; strings are a kind of their own.
template <typename T>
T NumberAs(const ArgumentValue& value) {
  const auto refuse = [&] {
    return Error(ErrorCode::kInvalidArgument, StrCat("value is ", value.Description(), ", which is no ", kDTypeOf<T>));
  };
  if (value.s || !value.floats.empty() || !value.ints.empty() || !value.strings.empty()) throw refuse();
  const double number = value.f ? *value.f : static_cast<double>(value.i.value_or(0));
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    const T stored = StoredAs<T>(number);
    if (std::isfinite(number) && !std::isfinite(ToFloat(stored))) throw refuse();
    return stored;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (!value.f) return value.i.value_or(0);  // beyond 2^53 no double is exact
    if (number != std::trunc(number) || std::abs(number) >= 0x1p63) throw refuse();
    return static_cast<std::int64_t>(number);
  } else if constexpr (std::is_integral_v<T>) {
    const bool fits = number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max();
    if (!fits || number != std::trunc(number)) throw refuse();
    return static_cast<T>(number);
  } else {
    return static_cast<T>(number);
  }
}

template <typename T>
T ConstantAs(const ArgumentValue& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (value.f || value.i) {
      throw Error(ErrorCode::kInvalidArgument, StrCat("value is ", value.Description(), ", which is no string"));
    }
    return value.s.value_or("");
  } else {
    return NumberAs<T>(value);
  }
}

// As in Caffe2, an int makes int64 where no dtype is given. What has the shape of 16 bits has them too, as gradients
// have the dtype of what they are of.
DType ConstantDType(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const ArgumentValue& value = op.Any("value");
  if (!op.HasArg("dtype")) {
    if (value.i && !value.f) return DType::kInt64;
    if (value.s) return DType::kString;
    const bool is_like_input = query.num_inputs() > 0 && !op.Bool("input_as_shape");
    if (is_like_input && IsStoredFloat(query.In(0).dtype)) return query.In(0).dtype;
  }
  return FillDType(query, DType::kFloat);
}

// The value, where a double holds it.
std::optional<double> NumberOf(const ArgumentValue& value, DType dtype) {
  constexpr double kMaxExact = 0x1p53;
  double number = 0;
  switch (dtype) {
    case DType::kFloat: return ConstantAs<float>(value);
    case DType::kDouble: return ConstantAs<double>(value);
    case DType::kFloat16: return ToFloat(ConstantAs<Float16>(value));
    case DType::kBFloat16: return ToFloat(ConstantAs<BFloat16>(value));
    case DType::kInt32: return ConstantAs<std::int32_t>(value);
    case DType::kBool: return ConstantAs<bool>(value) ? 1 : 0;
    case DType::kInt64: number = static_cast<double>(ConstantAs<std::int64_t>(value)); break;
    default: return {};
  }
  return std::abs(number) < kMaxExact ? std::optional(number) : std::nullopt;
}

void ExpandConstantFill(Expansion& e) {
  const ShapeQuery& query = e.query();
  const DType dtype = ConstantDType(query);
  if (query.op().Bool("input_as_shape") && e.outputs().empty()) return;
  const std::optional<double> number = NumberOf(query.op().Any("value"), dtype);
  if (!number) return;
  const Shape shape = e.outputs().empty() ? FillShape(query) : e.outputs()[0].shape;
  e.Fill(0, dtype, shape.size(), *number);
}

// What has the shape of an input has as many rows.
std::optional<RowOperands> ConstantFillRows(const ShapeQuery& query) {
  if (query.num_inputs() == 0 || query.op().Bool("input_as_shape") || query.In(0).shape.rank() == 0) return {};
  return RowOperands{.inputs = {0}, .outputs = {0}};
}

Operator ConstantFillOperator() {
  Operator op = FillOperator("ConstantFill");
  op.Doc("A tensor of equal elements.")
      .Args({{.name = "value",
              .type = ArgumentType::kAny,
              .doc = "the elements: a float, an int or a string, as dtype needs it. Default 0, false or \"\""}})
      .Check(CheckFill)
      .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
        TensorInfo y{.dtype = ConstantDType(query), .shape = FillShape(query)};
        ForDType(y.dtype, [&](auto zero) { ConstantAs<decltype(zero)>(query.op().Any("value")); });
        return {std::move(y)};
      })
      .Rows(ConstantFillRows)
      .Expands(ExpandConstantFill)
      .Cpu([](const OperatorCall& op) -> RunFn {
        return [value = op.Any("value")](const OpRun& run) {
          const TensorView& y = run.Out(0);
          ForDType(y.dtype, [&](auto zero) {
            using T = decltype(zero);
            const T element = ConstantAs<T>(value);
            InBlocks(
                y.size(), std::is_same_v<T, std::string> ? kWorkOfString : 1,
                [&](std::int64_t begin, std::int64_t end) { std::fill(y.As<T>() + begin, y.As<T>() + end, element); });
          });
        };
      });
  return DTypeArg(op,
                  "1 float, 2 int32, 4 string, 5 bool, 10 int64, 13 double, … Default: what value is written as; a "
                  "float takes the dtype of an input of double, float16 or bfloat16 whose shape y takes");
}

const Registration constant_fill = ConstantFillOperator();

std::int64_t CountOf(const ArgumentValue& values) {
  return static_cast<std::int64_t>(std::max({values.floats.size(), values.ints.size(), values.strings.size()}));
}

// Doubles of a list are decimals among its strings (core/exact_number.h).
template <typename T>
void SetText(const std::string& text, ArgumentValue* element) {
  const std::optional<double> number = std::is_same_v<T, std::string> ? std::nullopt : NumberOfDecimal(text);
  element->f = number;
  element->s = number ? std::nullopt : std::optional(text);
}

// The elements of the argument `values` as a tensor [count].
template <typename T>
Tensor GivenValues(const ArgumentValue& values) {
  const std::int64_t count = CountOf(values);
  Tensor tensor(kDTypeOf<T>, Shape({count}));
  ArgumentValue element;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    if (index < values.floats.size()) element.f = values.floats[index];
    if (index < values.ints.size()) element.i = values.ints[index];
    if (index < values.strings.size()) SetText<T>(values.strings[index], &element);
    try {
      tensor.data<T>()[i] = ConstantAs<T>(element);
    } catch (const Error& error) {
      throw Error(error.code(), StrCat("element ", i, " of values: ", error.message()));
    }
  }
  return tensor;
}

Tensor GivenValues(DType dtype, const ArgumentValue& values) {
  Tensor tensor;
  ForDType(dtype, [&](auto zero) { tensor = GivenValues<decltype(zero)>(values); });
  return tensor;
}

// `takes_dtype`: the argument dtype decides, and `dtype` is what holds without it.
Operator GivenTensorFillOperator(const char* type, DType dtype, bool takes_dtype = false) {
  const auto dtype_of = [=](const OperatorCall& op) {
    return takes_dtype && op.HasArg("dtype") ? DTypeOfCode(op.Int("dtype"), "dtype") : dtype;
  };
  Operator op = FillOperator(type);
  op.Doc(StrCat("A tensor whose elements are written in the net, as ", dtype, "."))
      .Args({{.name = "values",
              .type = ArgumentType::kAny,
              .doc = "the elements in row-major order, as many as y has: floats, doubles, ints or strings"}})
      .Check(CheckFill)
      .Shapes([=](const ShapeQuery& query) -> std::vector<TensorInfo> {
        const ArgumentValue& values = query.op().Any("values");
        TensorInfo y{.dtype = dtype_of(query.op()), .shape = FillShape(query)};
        if (CountOf(values) != y.shape.size()) {
          throw Error(ErrorCode::kShapeMismatch, StrCat(query.op().type(), " has ", CountOf(values),
                                                        " values for a tensor ", y.shape, " of ", y.shape.size()));
        }
        const bool may_be_sizes = y.dtype == DType::kInt32 || y.dtype == DType::kInt64;
        if (may_be_sizes && y.shape.size() <= kMaxKnownElements) {
          y.value = GivenValues(y.dtype, values).Reshaped(y.shape);
        }
        return {std::move(y)};
      });
  const Kernel kernel = {.make = [=](const OperatorCall& op) -> RunFn {
    return [values = GivenValues(dtype_of(op), op.Any("values"))](const OpRun& run) {
      const TensorView& y = run.Out(0);
      if (run.context().queue != nullptr) return run.queue().CopyFromHost(values.raw(), y.data, y.size_bytes());
      CopyRuns(y.dtype, static_cast<const std::byte*>(values.raw()), y.size(), At(y, 0), y.size(), y.size(), 1);
    };
  }};
  dtype == DType::kString ? op.Cpu(kernel) : op.OnEveryDevice(kernel);  // strings are the host's
  return DTypeArg(op, takes_dtype ? "1 float, 2 int32, 5 bool, 10 int64, 13 double, …" : "without effect here");
}

const Registration given_tensor_fill = GivenTensorFillOperator("GivenTensorFill", DType::kFloat, /*takes_dtype=*/true);
const Registration given_tensor_double_fill = GivenTensorFillOperator("GivenTensorDoubleFill", DType::kDouble);
const Registration given_tensor_int_fill = GivenTensorFillOperator("GivenTensorIntFill", DType::kInt32);
const Registration given_tensor_int64_fill = GivenTensorFillOperator("GivenTensorInt64Fill", DType::kInt64);
const Registration given_tensor_bool_fill = GivenTensorFillOperator("GivenTensorBoolFill", DType::kBool);
const Registration given_tensor_string_fill = GivenTensorFillOperator("GivenTensorStringFill", DType::kString);

}  // namespace
}  // namespace stepnet
