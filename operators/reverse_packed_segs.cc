// ReversePackedSegs: turns each sequence of a padded batch around; what lies beyond its length stays.
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

void CheckSequences(const ShapeQuery& query) {
  const Shape& x = query.In(0).shape;
  if (x.rank() < 2) throw WrongInputs(query, {0}, "needs x [T, B, …]");
  if (query.num_inputs() > 1) CheckLengthsInfo(query, 1, x[1], LengthsType::kInt32OrInt64);
}

// Whole sequences: the rows [B, …] of each step in reverse order.
void ReverseSteps(const TensorView& x, const TensorView& y) {
  const std::int64_t step = x.shape->SizeFrom(1);
  if (x.dim(0) > 0) CopyRuns(x.dtype, At(x, (x.dim(0) - 1) * step), -step, At(y, 0), step, step, x.dim(0));
}

void ReverseSequences(const TensorView& x, const TensorView& y, const Lengths& lengths) {
  const std::int64_t num_steps = x.dim(0);
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
            "stays as it is. Without lengths all sequences are T long: y[t] = x[T - 1 - t].")
        .Input("x", "[T, B, …], any dtype")
        .OptionalInput("lengths", "int32 or int64 [B], from 0 to T")
        .Output("y", Like("x"))
        .CheckShapes(CheckSequences)
        .Gradient("ReversePackedSegs", {"dy", "lengths"}, {"dx"})
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                if (op.num_inputs() == 1) return [](const OpRun& run) { ReverseSteps(run.In(0), run.Out(0)); };
                return [name = op.inputs()[1]](const OpRun& run) {
                  ReverseSequences(run.In(0), run.Out(0), Lengths(run, 1, name, run.In(0).dim(0)));
                };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
