// ReversePackedSegs: turns each sequence of a padded batch around; what lies beyond its length stays.
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> ReverseShapes(const ShapeQuery& query) {
  const TensorInfo& x = query.In(0);
  if (x.shape.rank() < 2) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat(query.op().inputs()[0], " is ", x.Description(), "; ReversePackedSegs needs x [T, B, …]"));
  }
  CheckLengthsInfo(query, 1, x.shape[1], LengthsType::kInt32OrInt64);
  return {{.dtype = x.dtype, .shape = x.shape}};
}

void RunReverse(const OpRun& run, const std::string& lengths_name) {
  const TensorView& x = run.In(0);
  const TensorView& y = run.Out(0);
  const std::int64_t num_steps = x.dim(0);
  const Lengths lengths(run.In(1), lengths_name, num_steps);
  const std::int64_t row = x.shape->SizeFrom(2);
  const std::int64_t step = x.dim(1) * row;
  for (std::int64_t b = 0; b < lengths.count(); ++b) {
    const std::int64_t length = lengths[b];
    if (length > 0) {
      CopyRuns(x.dtype, At(x, (length - 1) * step + b * row), -step, At(y, b * row), step, row, length);
    }
    if (length < num_steps) {
      const std::int64_t rest = length * step + b * row;
      CopyRuns(x.dtype, At(x, rest), step, At(y, rest), step, row, num_steps - length);
    }
  }
}

const Registration reverse_packed_segs =
    Operator("ReversePackedSegs")
        .Doc(
            "Reverses each sequence: y[t, b] = x[lengths[b] - 1 - t, b] for t < lengths[b]; the padding behind it "
            "stays as it is.")
        .Input("x", "[T, B, …], any dtype")
        .Input("lengths", "int32 or int64 [B], from 0 to T")
        .Output("y", "[T, B, …]")
        .Shapes(ReverseShapes)
        .Gradient("ReversePackedSegs", {"dy", "lengths"}, {"dx"})
        .Cpu([](const OpInit& op) -> RunFn {
          return [name = op.inputs()[1]](const OpRun& run) { RunReverse(run, name); };
        });

}  // namespace
}  // namespace stepnet
