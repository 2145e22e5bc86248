// PackRNNSequence lays sequences that follow one another side by side, padded with zeros; UnpackRNNSequence undoes it.
// Each is the other's gradient.
#include <limits>

#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int32_t>::max();

void CheckRows(const ShapeQuery& query, const Lengths& lengths) {
  if (query.In(0).shape[0] == lengths.sum()) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat(InputText(query, 0), " and the lengths in ", query.op().inputs()[1], " add up to ", lengths.sum(),
                     "; PackRNNSequence needs x [sum of the lengths, …]"));
}

Shape WithTail(std::vector<std::int64_t> sizes, const Shape& x, int from) {
  for (int i = from; i < x.rank(); ++i) sizes.push_back(x[i]);
  return Shape(sizes);
}

std::vector<TensorInfo> PackShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  if (x.shape.rank() < 1) {
    throw WrongInputs(query, {0}, "needs x [sum of the lengths, …]");
  }
  CheckLengthsInfo(query, 1, -1);
  const std::int64_t count = query.In(1).shape[0];
  if (query.num_inputs() > 2) {  // shapes alone decide
    const Shape& like = query.In(2).shape;
    const Shape packed = WithTail({like.rank() > 0 ? like[0] : 0, count}, x.shape, 1);
    if (like != packed) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat(op.inputs()[2], " is ", like, "; PackRNNSequence needs a shape [T, ", count,
                         "] and then that of a row of x, which is ", x.shape));
    }
    return {{.dtype = x.dtype, .shape = packed}};
  }
  if (!query.ValueKnown(1)) throw ValueUnknown{1};
  const Lengths lengths(query.In(1).value.View(), op.inputs()[1], kAnyLength);
  CheckRows(query, lengths);
  return {{.dtype = x.dtype, .shape = WithTail({lengths.max(), count}, x.shape, 1)}};
}

std::vector<TensorInfo> UnpackShapes(const ShapeQuery& query) {
  const OperatorCall& op = query.op();
  const TensorInfo& x = query.In(0);
  if (x.shape.rank() < 2) {
    throw WrongInputs(query, {0}, "needs x [T, B, …]");
  }
  CheckLengthsInfo(query, 1, x.shape[1]);
  if (!query.ValueKnown(1)) throw ValueUnknown{1};
  const Lengths lengths(query.In(1).value.View(), op.inputs()[1], x.shape[0]);
  return {{.dtype = x.dtype, .shape = WithTail({lengths.sum()}, x.shape, 2)}};
}

// Copies sequence after sequence between packed [T, B, …] and flat [sum of the lengths, …]. Where the lengths do not
// add up, which is a fault of the run, the output is zeros.
void CopySequences(const OpRun& run, const std::string& lengths_name, bool packs) {
  const TensorView& packed = packs ? run.Out(0) : run.In(0);
  const TensorView& flat = packs ? run.In(0) : run.Out(0);
  const Lengths lengths(run, 1, lengths_name, packed.dim(0), flat.dim(0));
  const bool fit = lengths.sum() == flat.dim(0);
  if (packs || !fit) ClearElements(run.Out(0).dtype, At(run.Out(0), 0), run.Out(0).size());
  if (!fit) return;
  const std::int64_t row = flat.shape->SizeFrom(1);
  const std::int64_t step = packed.dim(1) * row;
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < lengths.count(); ++b) {
    if (lengths[b] == 0) continue;
    if (packs) {
      CopyRuns(flat.dtype, At(flat, at * row), row, At(packed, b * row), step, row, lengths[b]);
    } else {
      CopyRuns(flat.dtype, At(packed, b * row), step, At(flat, at * row), row, row, lengths[b]);
    }
    at += lengths[b];
  }
}

const Registration pack =
    Operator("PackRNNSequence")
        .Doc(
            "Lays sequences that follow one another side by side: y[t, b] is row t of sequence b, and 0 beyond its "
            "length.")
        .Input("x", "[sum of the lengths, …], any dtype")
        .Input("lengths", "int32 [B], at least 0")
        .OptionalInput("like", "[T, B, …]: its shape is that of y. Without it, T is the greatest length")
        .Output("y", "[T, B, …]")
        .ShapesReadValues({1})
        .Shapes(PackShapes)
        .Gradient("UnpackRNNSequence", {"dy", "lengths"}, {"dx"})
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [name = op.inputs()[1]](const OpRun& run) { CopySequences(run, name, /*packs=*/true); };
              },
              .checks_values = true});

const Registration unpack =
    Operator("UnpackRNNSequence")
        .Doc("Puts the sequences of a padded batch one behind the other, without their padding.")
        .Input("x", "[T, B, …], any dtype")
        .Input("lengths", "int32 [B], from 0 to T")
        .Output("y", "[sum of the lengths, …]")
        .ShapesReadValues({1})
        .Shapes(UnpackShapes)
        // x tells T, which may exceed the greatest length.
        .Gradient("PackRNNSequence", {"dy", "lengths", "x"}, {"dx"})
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [name = op.inputs()[1]](const OpRun& run) { CopySequences(run, name, /*packs=*/false); };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
