// Softmax: y_i = exp(x_i) / sum_j exp(x_j), and LogSoftmax: y_i = x_i - log(sum_j exp(x_j)), over the rows of x as a
// matrix [N, D] of its sizes before and from `axis`. The largest element of the row is taken off first, so that no
// exponential overflows.
#include <cstdint>
#include <limits>

#include "stepnet/core/vector_math.h"
#include "stepnet/operators/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/softmax.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE T LargestOf(const T* x, std::int64_t size) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto largest = lowest;
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    largest = hn::Max(largest, access.KeepOr(d, access.Load(d, x + i), lowest));
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Subtracts `offset` from a row; stores exponentials or the differences themselves. Returns the sum of exponentials.
template <bool kStoresExp, typename T>
HWY_INLINE T SumOfExp(const T* x, std::int64_t size, T offset, T* y) {
  const hn::ScalableTag<T> d;
  const auto zero = hn::Zero(d);
  auto sum = zero;
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    const auto difference = hn::Sub(access.Load(d, x + i), hn::Set(d, offset));
    const auto exponential = ExpFn()(d, difference);
    sum = hn::Add(sum, access.KeepOr(d, exponential, zero));
    access.Store(d, kStoresExp ? exponential : difference, y + i);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <typename T>
void SoftmaxRow(const T* x, std::int64_t size, T* y) {
  const hn::ScalableTag<T> d;
  const auto sum = hn::Set(d, SumOfExp<true>(x, size, LargestOf(x, size), y));
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(d, hn::Div(access.Load(d, y + i), sum), y + i);
  });
}

template <typename T>
void LogSoftmaxRow(const T* x, std::int64_t size, T* y) {
  const hn::ScalableTag<T> d;
  const auto sum = hn::Set(d, SumOfExp<false>(x, size, LargestOf(x, size), y));
  const auto log_sum = LogFn()(d, sum);
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(d, hn::Sub(access.Load(d, y + i), log_sum), y + i);
  });
}

template <typename T>
void SoftmaxGradientRow(const T* y, const T* dy, std::int64_t size, T* dx) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {  // lanes beyond the row are 0
    sum = hn::MulAdd(access.Load(d, y + i), access.Load(d, dy + i), sum);
  });
  const auto mean = hn::SumOfLanes(d, sum);
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    access.Store(d, hn::Mul(access.Load(d, y + i), hn::Sub(access.Load(d, dy + i), mean)), dx + i);
  });
}

template <typename T>
void LogSoftmaxGradientRow(const T* y, const T* dy, std::int64_t size, T* dx) {
  const hn::ScalableTag<T> d;
  auto lanes = hn::Zero(d);
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR { lanes = hn::Add(lanes, access.Load(d, dy + i)); });
  const auto sum = hn::SumOfLanes(d, lanes);
  ForEachVector(d, size, [&](auto access, std::int64_t i) HWY_ATTR {
    const auto exponential = ExpFn()(d, access.Load(d, y + i));
    access.Store(d, hn::NegMulAdd(exponential, sum, access.Load(d, dy + i)), dx + i);
  });
}

void SoftmaxFloat(const float* x, std::int64_t size, float* y) { SoftmaxRow(x, size, y); }
void SoftmaxDouble(const double* x, std::int64_t size, double* y) { SoftmaxRow(x, size, y); }
void LogSoftmaxFloat(const float* x, std::int64_t size, float* y) { LogSoftmaxRow(x, size, y); }
void LogSoftmaxDouble(const double* x, std::int64_t size, double* y) { LogSoftmaxRow(x, size, y); }
void SoftmaxGradientFloat(const float* y, const float* dy, std::int64_t size, float* dx) {
  SoftmaxGradientRow(y, dy, size, dx);
}
void SoftmaxGradientDouble(const double* y, const double* dy, std::int64_t size, double* dx) {
  SoftmaxGradientRow(y, dy, size, dx);
}
void LogSoftmaxGradientFloat(const float* y, const float* dy, std::int64_t size, float* dx) {
  LogSoftmaxGradientRow(y, dy, size, dx);
}
void LogSoftmaxGradientDouble(const double* y, const double* dy, std::int64_t size, double* dx) {
  LogSoftmaxGradientRow(y, dy, size, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(SoftmaxFloat);
HWY_EXPORT(SoftmaxDouble);
HWY_EXPORT(LogSoftmaxFloat);
HWY_EXPORT(LogSoftmaxDouble);
HWY_EXPORT(SoftmaxGradientFloat);
HWY_EXPORT(SoftmaxGradientDouble);
HWY_EXPORT(LogSoftmaxGradientFloat);
HWY_EXPORT(LogSoftmaxGradientDouble);

// The functions of one row, for T and the machine.
template <typename T>
using RowFn = void (*)(const T* x, std::int64_t size, T* y);
template <typename T>
using GradientRowFn = void (*)(const T* y, const T* dy, std::int64_t size, T* dx);

template <typename T>
RowFn<T> FunctionOfRow(bool is_log) {
  if constexpr (std::is_same_v<T, float>) {
    return is_log ? HWY_DYNAMIC_DISPATCH(LogSoftmaxFloat) : HWY_DYNAMIC_DISPATCH(SoftmaxFloat);
  } else {
    return is_log ? HWY_DYNAMIC_DISPATCH(LogSoftmaxDouble) : HWY_DYNAMIC_DISPATCH(SoftmaxDouble);
  }
}

template <typename T>
GradientRowFn<T> GradientFunctionOfRow(bool is_log) {
  if constexpr (std::is_same_v<T, float>) {
    return is_log ? HWY_DYNAMIC_DISPATCH(LogSoftmaxGradientFloat) : HWY_DYNAMIC_DISPATCH(SoftmaxGradientFloat);
  } else {
    return is_log ? HWY_DYNAMIC_DISPATCH(LogSoftmaxGradientDouble) : HWY_DYNAMIC_DISPATCH(SoftmaxGradientDouble);
  }
}

// Calls fn(row, size of a row) for every row of `shape` cut at `axis`.
template <typename Fn>
void ForRows(const Shape& shape, std::int64_t axis, const Fn& fn) {
  const int cut = shape.CanonicalAxis(axis);
  const std::int64_t rows = shape.SizeTo(cut), size = shape.SizeFrom(cut);
  if (size == 0) return;
  for (std::int64_t row = 0; row < rows; ++row) fn(row * size, size);
}

// As SameFloats; throws kInvalidArgument for an axis that x does not have.
std::vector<TensorInfo> ShapesWithAxis(const ShapeQuery& query) {
  std::vector<TensorInfo> outputs = SameFloats()(query);
  query.In(0).shape.CanonicalAxis(query.op().Int("axis"));
  return outputs;
}

Operator Forward(const char* type, bool is_log, const char* doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("x", "[N, D], each of them any number of sizes")
      .Output("y", "the shape of x")
      .Arg("axis", 1, "sizes of x from here on make D, those before make N; negative counts from the end")
      .Shapes(ShapesWithAxis)
      .Gradient(std::string(type) + "Gradient", {"y", "dy"}, {"dx"})
      .Cpu([is_log](const OperatorCall& op) -> RunFn {
        return [is_log, axis = op.Int("axis"), type = op.type()](const OpRun& run) {
          ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
            using T = decltype(zero);
            const RowFn<T> function = FunctionOfRow<T>(is_log);
            const T* x = run.In(0).As<T>();
            T* y = run.Out(0).As<T>();
            ForRows(*run.In(0).shape, axis,
                    [&](std::int64_t at, std::int64_t size) { function(x + at, size, y + at); });
          });
        };
      });
  return op;
}

Operator Gradient(const char* type, bool is_log, const char* doc) {
  Operator op(type);
  op.Doc(doc)
      .Input("y", "[N, D]")
      .Input("dy", "the shape of y")
      .Output("dx", "the shape of y")
      .Arg("axis", 1, "as in the forward operator")
      .Shapes(ShapesWithAxis)
      .Cpu([is_log](const OperatorCall& op) -> RunFn {
        return [is_log, axis = op.Int("axis"), type = op.type()](const OpRun& run) {
          ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
            using T = decltype(zero);
            const GradientRowFn<T> function = GradientFunctionOfRow<T>(is_log);
            const T* y = run.In(0).As<T>();
            const T* dy = run.In(1).As<T>();
            T* dx = run.Out(0).As<T>();
            ForRows(*run.In(0).shape, axis,
                    [&](std::int64_t at, std::int64_t size) { function(y + at, dy + at, size, dx + at); });
          });
        };
      });
  return op;
}

const Registration softmax = Forward("Softmax", false, "y = exp(x) over the sum of exp(x), row by row.");
const Registration softmax_gradient = Gradient("SoftmaxGradient", false, "dx = y (dy - sum of y dy over the row).");
const Registration log_softmax = Forward("LogSoftmax", true, "y = the logarithm of Softmax, row by row.");
const Registration log_softmax_gradient =
    Gradient("LogSoftmaxGradient", true, "dx = dy - exp(y) times the sum of dy over the row.");

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE
