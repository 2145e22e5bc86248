// FillPadding: rows of steps that do not count in a padded batch, replaced by one of a step that does. It is no
// formula: values say where a row comes from.
#include <cstdint>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"

namespace stepnet {
namespace {

// Throws unless input 1 is a mask of the rows of input 0.
void CheckMask(const ShapeQuery& query) {
  const TensorInfo &x = query.In(0), &mask = query.In(1);
  if (x.shape.rank() < 2) throw WrongInputs(query, {0}, "needs x [T, B, …]");
  const TensorInfo wanted{.dtype = DType::kBool, .shape = Shape({x.shape[0], x.shape[1]})};
  if (mask == wanted) return;
  throw WrongInputs(query, {0, 1}, StrCat("needs a mask ", wanted.Description()),
                    mask.dtype == wanted.dtype ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch);
}

constexpr std::int64_t kNone = -1;

// The number of the first row of sequence b that counts, of T * B; kNone where none does.
std::int64_t FirstRow(const bool* mask, std::int64_t num_steps, std::int64_t batch, std::int64_t b) {
  for (std::int64_t row = b; row < num_steps * batch; row += batch) {
    if (mask[row]) return row;
  }
  return kNone;
}

// Calls fn(sequence, the row that stands for those of it that do not count) for each sequence: first for those that
// have a row that counts, then for others. A GPU adds gradients in the same order.
template <typename Fn>
void ForSequences(const bool* mask, std::int64_t num_steps, std::int64_t batch, const Fn& fn) {
  std::int64_t of_others = kNone;
  for (const bool has_row : {true, false}) {
    for (std::int64_t b = 0; b < batch; ++b) {
      CountWork(num_steps);
      const std::int64_t first = FirstRow(mask, num_steps, batch, b);
      if (of_others == kNone) of_others = first;
      if (has_row == (first != kNone)) fn(b, has_row ? first : of_others);
    }
  }
}

void Fill(const OpRun& run) {
  const TensorView &x = run.In(0), &y = run.Out(0);
  const bool* const mask = run.In(1).As<bool>();
  const std::int64_t num_steps = x.dim(0), batch = x.dim(1), length = x.shape->SizeFrom(2);
  ForSequences(mask, num_steps, batch, [&](std::int64_t b, std::int64_t filling) {
    for (std::int64_t row = b; row < num_steps * batch; row += batch) {
      CountWork(length);
      const std::int64_t from = mask[row] ? row : filling;
      if (from == kNone) {
        ClearElements(y.dtype, At(y, row * length), length);
      } else {
        CopyRuns(x.dtype, At(x, from * length), length, At(y, row * length), length, length, 1);
      }
    }
  });
}

template <typename T>
void FillGradient(const OpRun& run) {
  const TensorView& dy_view = run.In(0);
  const T* const dy = dy_view.As<T>();
  const bool* const mask = run.In(1).As<bool>();
  T* const dx = run.Out(0).As<T>();
  const std::int64_t num_steps = dy_view.dim(0), batch = dy_view.dim(1), length = dy_view.shape->SizeFrom(2);
  for (std::int64_t row = 0; row < num_steps * batch; ++row) {
    CountWork(length);
    for (std::int64_t i = row * length; i < (row + 1) * length; ++i) dx[i] = mask[row] ? dy[i] : T{0};
  }
  ForSequences(mask, num_steps, batch, [&](std::int64_t b, std::int64_t filling) {
    for (std::int64_t row = b; row < num_steps * batch && filling != kNone; row += batch) {
      if (mask[row]) continue;
      CountWork(length);
      for (std::int64_t i = 0; i < length; ++i) dx[filling * length + i] += dy[row * length + i];
    }
  });
}

const Registration fill_padding =
    Operator("FillPadding")
        .Doc(
            "Puts in place of each row of a padded batch that does not count the first one of its sequence that does: "
            "y[t, b] = x[t, b] where mask[t, b] is true, and x[s, b] elsewhere, for the first s where mask[s, b] is. A "
            "sequence without such a row has that of the first sequence that has one; without any there are zeros. "
            "Steps of a cell that do not count read it where a gradient may be infinite, as that of Sqrt at 0, which "
            "would be NaN times the 0 that is handed back to such steps.")
        .Input("x", "[T, B, …], any dtype; what stands in rows that do not count, as NaN, goes nowhere")
        .Input("mask", "bool [T, B]: which rows count, as StepMask gives it")
        .Output("y", Like("x"))
        .CheckShapes(CheckMask)
        .Gradient("FillPaddingGradient", {"dy", "mask"}, {"dx"})
        .Cpu({.make = [](const OperatorCall&) -> RunFn { return Fill; }});

const Registration fill_padding_gradient =
    GradientOf("FillPadding",
               "dx = dy where the mask is true and 0 elsewhere; to a row that stands for others dy of these is added. "
               "Of float or double.")
        .CheckShapes([](const ShapeQuery& query) {
          ExpectFloat(query, 0);
          CheckMask(query);
        })
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
          return FloatKernel(op, []<typename T>(const OpRun& run) { FillGradient<T>(run); });
        }});

}  // namespace
}  // namespace stepnet
