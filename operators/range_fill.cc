// Fills that count: RangeFill over a whole tensor, LengthsRangeFill anew for each of a row of lengths, which is no
// formula: lengths say where it begins again.
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula.h"
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
