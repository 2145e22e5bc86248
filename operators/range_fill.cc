// Fills that count: RangeFill over a whole tensor, Range from one number to another, LengthsRangeFill anew for each of
// a row of lengths, which is no formula: lengths say where it begins again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/fill.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

const Registration range_fill =
    FloatFillOperator("RangeFill")
        .Doc("The numbers 0, 1, 2, … in row-major order.")
        .Formula([](Formula& f) {
          const TensorInfo& y = f.OutputByRule();
          f.Over(Shape({y.shape.size()}));
          f.Out({Cast(y.dtype, Index(3))});
        })
        // By hand, because counting is most of it, which a formula does in int64 before it casts.
        .Cpu([](const OperatorCall& op) {
          return FloatKernel(op, []<typename T>(const OpRun& run) {
            T* y = run.Out(0).As<T>();
            InBlocks(run.Out(0).size(), 1, [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(i);
            });
          });
        });

// From `start` in steps of `step`, while `stop` is not reached.
template <typename T>
struct Steps {
  T start, stop, step;

  explicit Steps(const ShapeQuery& query)
      : start(query.num_inputs() > 1 ? ValueOf(query, 0) : T{0}),
        stop(ValueOf(query, query.num_inputs() > 1 ? 1 : 0)),
        step(query.num_inputs() > 2 ? ValueOf(query, 2) : T{1}) {
    const bool is_finite = std::isfinite(static_cast<double>(start)) && std::isfinite(static_cast<double>(stop));
    if (is_finite && step != T{0} && !std::isnan(static_cast<double>(step))) return;
    throw Error(ErrorCode::kInvalidArgument, StrCat("Range goes from ", start, " to ", stop, " in steps of ", step,
                                                    "; both must be finite, and a step must be a number other than 0"));
  }

  std::int64_t count() const {
    if constexpr (std::is_integral_v<T>) {
      if (step > 0 ? start >= stop : start <= stop) return 0;
      // The distance of two int64 need not be one.
      const auto from = static_cast<std::uint64_t>(start), to = static_cast<std::uint64_t>(stop);
      const std::uint64_t distance = step > 0 ? to - from : from - to;
      const std::uint64_t length = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
      return static_cast<std::int64_t>(std::min<std::uint64_t>((distance - 1) / length + 1, INT64_MAX));
    } else {
      const double steps = std::ceil((static_cast<double>(stop) - static_cast<double>(start)) / step);
      return steps >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(std::max(steps, 0.0));
    }
  }

 private:
  static T ValueOf(const ShapeQuery& query, int i) { return query.In(i).value.template data<T>()[0]; }
};

std::vector<TensorInfo> RangeShapes(const ShapeQuery& query) {
  ExpectType(query, 0, {DType::kInt32, DType::kInt64, DType::kFloat, DType::kDouble});
  for (int i = 0; i < query.num_inputs(); ++i) {
    ExpectSameType(query, 0, i);
    ExpectOneElement(query, i, "a number");
    if (!query.ValueKnown(i)) throw ValueUnknown{i};
  }
  const DType dtype = query.In(0).dtype;
  std::int64_t count = 0;
  const auto set_count = [&]<typename T>(T) { count = Steps<T>(query).count(); };
  if (dtype == DType::kInt32 || dtype == DType::kInt64) {
    ForIndexType(dtype, "a number of Range", set_count);
  } else {
    ForFloatType(dtype, "Range", set_count);
  }
  return {{.dtype = dtype, .shape = Shape({count})}};
}

const Registration range = Operator("Range")
                               .Doc(
                                   "The numbers start, start + step, start + 2 step, … before stop; floats are "
                                   "computed in double, and rounded. "
                                   "With one input it is stop, and start is 0.")
                               .Input("start", "one element, int32, int64, float or double")
                               .OptionalInput("stop", "like start")
                               .OptionalInput("step", "like start, not 0. Default 1")
                               .Output("y", "[number of them], the dtype of start")
                               .ShapesReadValues({0, 1, 2})
                               .Shapes(RangeShapes)
                               .StopsGradient()
                               .Formula([](Formula& f) {
                                 const TensorInfo& y = f.OutputByRule();
                                 f.Over(Shape({y.shape.size()}));
                                 const DType computed = IsFloatOrDouble(y.dtype) ? DType::kDouble : y.dtype;
                                 Expr number = Cast(computed, Index(3));
                                 if (f.Has("step")) number = number * Cast(computed, f.Scalar("step"));
                                 if (f.Has("stop")) number = number + Cast(computed, f.Scalar("start"));
                                 f.Out({Cast(y.dtype, number)});
                               });

constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max();

const Registration lengths_range_fill =
    Operator("LengthsRangeFill")
        .Doc("For lengths [3, 1, 2]: 0, 1, 2, 0, 0, 1.")
        .Input("lengths", "int32 [number of sequences], each at least 0")
        .Output("y", "int32 [sum of the lengths]")
        .ShapesReadValues({0})
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          CheckLengthsInfo(query, 0, -1);
          if (!query.ValueKnown(0)) throw ValueUnknown{0};
          const Lengths lengths(query.In(0).value.View(), query.op().inputs()[0], kMaxLength);
          return {{.dtype = DType::kInt32, .shape = Shape({lengths.sum()})}};
        })
        .StopsGradient()
        .Cpu([](const OperatorCall& op) -> RunFn {
          return [name = op.inputs()[0]](const OpRun& run) {
            const Lengths lengths(run.In(0), name, kMaxLength);
            if (lengths.sum() != run.Out(0).size()) {
              throw Error(ErrorCode::kInternal, StrCat(name, " changed after the shape of its range was inferred"));
            }
            auto* out = run.Out(0).As<std::int32_t>();
            for (std::int64_t i = 0; i < lengths.count(); ++i) {
              InBlocks(lengths[i], 1, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t k = begin; k < end; ++k) *out++ = static_cast<std::int32_t>(k);
              });
            }
          };
        });

}  // namespace
}  // namespace stepnet
