// SequenceMask: y = x in a part of each row that lengths, windows or the diagonal mark out, fill_val elsewhere.
//
// The formula compares each column; the kernel is written by hand because it copies and fills runs of them.
#include <algorithm>
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/regions/region_kernels.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

enum class Mode { kSequence, kWindow, kUpper, kLower, kUpperDiag, kLowerDiag };

Mode ModeArgument(const OperatorCall& op) {
  const std::string& mode = op.String("mode");
  if (mode == "sequence") return Mode::kSequence;
  if (mode == "window") return Mode::kWindow;
  if (mode == "upper") return Mode::kUpper;
  if (mode == "lower") return Mode::kLower;
  return mode == "upperdiag" ? Mode::kUpperDiag : Mode::kLowerDiag;
}

// What the arguments say about dimensions.
struct Layout {
  explicit Layout(const OperatorCall& op)
      : axis(op.Int("axis")),
        batch(op.Int("batch")),
        repeat_from(op.Int("repeat_from_axis")),
        has_batch(op.HasArg("batch")),
        has_repeat(op.HasArg("repeat_from_axis")) {}

  std::int64_t axis;
  std::int64_t batch;
  std::int64_t repeat_from;
  bool has_batch;
  bool has_repeat;
};

// x seen as [batches, rows, columns, repeats]; the mask is the same for all batches and repeats.
struct Extents {
  std::int64_t batches = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t repeats = 1;
};

Extents ExtentsOf(const Shape& x, const Layout& layout) {
  const int axis = x.CanonicalAxis(layout.axis);
  const int first_row = layout.has_batch ? x.CanonicalAxis(layout.batch, "batch") + 1 : 0;
  const int repeat = layout.has_repeat ? x.CanonicalAxis(layout.repeat_from, "repeat_from_axis") : x.rank();
  if (first_row > axis || repeat < axis) {
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("for a tensor ", x, " axis is ", axis, first_row > axis ? ", batch " : ", repeat_from_axis ",
               first_row > axis ? first_row - 1 : repeat, "; SequenceMask needs batch < axis <= repeat_from_axis"));
  }
  Extents extents;
  for (int i = 0; i < x.rank(); ++i) {
    std::int64_t& part = i < first_row ? extents.batches
                         : i < axis    ? extents.rows
                         : i < repeat  ? extents.columns
                                       : extents.repeats;
    part *= x[i];
  }
  return extents;
}

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// The columns of row i that are kept. `position` is the row's length or the centre of its window.
Range KeptColumns(Mode mode, std::int64_t i, std::int64_t position, std::int64_t radius, std::int64_t columns) {
  switch (mode) {
    case Mode::kSequence: return {0, position};
    case Mode::kWindow: return {position - radius, position + radius + 1};
    case Mode::kUpper: return {0, i + 1};
    case Mode::kLower: return {i, columns};
    case Mode::kUpperDiag: return {0, i};
    case Mode::kLowerDiag: return {i + 1, columns};
  }
  return {0, 0};
}

void CheckLengthsOfMask(const ShapeQuery& query) {
  const Mode mode = ModeArgument(query.op());
  const Extents extents = ExtentsOf(query.In(0).shape, Layout(query.op()));
  if (mode != Mode::kSequence && mode != Mode::kWindow) return;
  if (query.num_inputs() < 2) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("SequenceMask with mode ", query.op().String("mode"),
                                                    " needs lengths or centres as a second input"));
  }
  CheckLengthsInfo(query, 1, extents.rows);
}

struct SequenceMask {
  explicit SequenceMask(const OperatorCall& op)
      : mode(ModeArgument(op)),
        layout(op),
        radius(op.Int("radius")),
        fill(op.Bool("grad") ? 0 : op.Number("fill_val")),
        lengths_name(op.num_inputs() > 1 ? op.inputs()[1] : "") {}

  template <typename T>
  void Run(const OpRun& run) const {
    const Extents extents = ExtentsOf(*run.In(0).shape, layout);
    if (mode == Mode::kSequence) Lengths(run, 1, lengths_name, extents.columns);  // checks
    const bool has_positions = mode == Mode::kSequence || mode == Mode::kWindow;
    const std::int32_t* positions = has_positions ? run.In(1).As<std::int32_t>() : nullptr;
    const std::int64_t row_size = extents.columns * extents.repeats;
    const RegionKernel fill_kernel = FillKernelOf(kDTypeOf<T>);
    const T masked = static_cast<T>(fill);
    const auto mask = [&](T* first, T* last) {
      if (last - first < kCpuTarget.min_run_to_fill) return std::fill(first, last, masked);
      fill_kernel(first, &masked, nullptr, nullptr, nullptr, last - first);
    };
    const T* x = run.In(0).As<T>();
    T* y = run.Out(0).As<T>();
    for (std::int64_t b = 0; b < extents.batches; ++b) {
      for (std::int64_t i = 0; i < extents.rows; ++i) {
        CountWork(row_size);
        const Range kept = KeptColumns(mode, i, has_positions ? positions[i] : 0, radius, extents.columns);
        const std::int64_t begin = std::clamp<std::int64_t>(kept.begin, 0, extents.columns) * extents.repeats;
        const std::int64_t end =
            std::max(begin, std::clamp<std::int64_t>(kept.end, 0, extents.columns) * extents.repeats);
        mask(y, y + begin);
        if (x != y) std::copy(x + begin, x + end, y + begin);
        mask(y + end, y + row_size);
        x += row_size;
        y += row_size;
      }
    }
  }

  Mode mode;
  Layout layout;
  std::int64_t radius;
  double fill;
  std::string lengths_name;
};

// Whether column j of row i is kept, of a row whose length or centre is `position`.
Expr IsKept(Mode mode, const Expr& i, const Expr& j, const Expr& position, std::int64_t radius) {
  switch (mode) {
    case Mode::kSequence: return j < position;
    case Mode::kWindow: return And(j >= position - radius, j <= position + radius);
    case Mode::kUpper: return j <= i;
    case Mode::kLower: return j >= i;
    case Mode::kUpperDiag: return j < i;
    case Mode::kLowerDiag: return j > i;
  }
  return true;
}

void MaskFormula(Formula& f) {
  const Mode mode = ModeArgument(f.op());
  const Extents extents = ExtentsOf(f.ShapeOf("x"), Layout(f.op()));
  // Rows of a region are of columns where nothing repeats, not of one element each.
  const bool repeats = extents.repeats != 1;
  f.Over(repeats ? Shape({extents.batches, extents.rows, extents.columns, extents.repeats})
                 : Shape({extents.batches, extents.rows, extents.columns}));
  const Expr x = f.In("x");
  const Expr row = Index(repeats ? 1 : 2), column = Index(repeats ? 2 : 3);
  const bool has_positions = mode == Mode::kSequence || mode == Mode::kWindow;
  const Expr position = has_positions ? Cast(DType::kInt64, f.Along("lengths", {1})) : Expr();
  if (mode == Mode::kSequence) CheckLength(f, 1, position, row, extents.columns);
  const double fill = f.Bool("grad") ? 0 : f.Number("fill_val");
  f.Out({Where(IsKept(mode, row, column, position, f.Int("radius")), x, fill)});
}

const Registration sequence_mask =
    Operator("SequenceMask")
        .Doc(
            "Masks parts of rows, as attention does before its softmax. x is seen as rows (dimensions before axis) of "
            "columns (the others). Column j of row i keeps its value where, by mode: sequence: j < lengths[i]; window: "
            "|j - centres[i]| <= radius; upper: j <= i; lower: j >= i; upperdiag: j < i; lowerdiag: j > i. "
            "Elsewhere y is fill_val.")
        .Input("x", OfFloats("[rows…, columns…], or [batches…, rows…, columns…, repeats…]; float, double, float16 or "
                             "bfloat16"))
        .OptionalInput("lengths", "int32 [rows]: lengths, from 0 to the number of columns, or centres of windows")
        .Output("y", Like("x"))
        .RequiredArg("mode", ArgumentType::kString, "which part is kept",
                     OneOf({"sequence", "window", "upper", "lower", "upperdiag", "lowerdiag"}))
        .Arg("axis", 1, "first dimension of the columns; negative counts from the end")
        .Arg("batch", 0, "where given, the last of leading dimensions along which the mask is repeated")
        .Arg("repeat_from_axis", -1, "where given, the first of trailing dimensions along which the mask is repeated")
        .Arg("radius", 10, "of windows", Between(0, 0x1p31))
        .Arg("fill_val", -std::numeric_limits<float>::infinity(), "what is written where x is masked")
        .Arg("grad", false, "the gradient: 0 takes the place of fill_val")
        .CheckShapes(CheckLengthsOfMask)
        .InPlace({{0, 0}})
        .Gradient([](GradientBuilder& g) {
          GradientOp op{.type = "SequenceMask", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}};
          if (g.op().num_inputs() > 1) op.inputs.push_back(g.I(1));
          op.arguments["grad"] = {.i = 1};
          g.Add(std::move(op));
        })
        .Formula(MaskFormula, {.checks_values = true})
        .Cpu(KernelOrFormula({.make = [](const OperatorCall& op) -> RunFn {
                                return FloatKernel(
                                    op, [mask = SequenceMask(op)]<typename T>(const OpRun& run) { mask.Run<T>(run); });
                              },
                              .checks_values = true}));

}  // namespace
}  // namespace stepnet
