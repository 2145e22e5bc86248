// AddPadding puts rows in front of and behind each of a row of sequences, RemovePadding takes them away; GatherPadding
// adds up what stands there, which is the gradient of the padding. They are no formulas: lengths say where rows go.
#include <algorithm>
#include <limits>
#include <optional>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/operator.h"
#include "stepnet/operators/dtypes.h"
#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

constexpr double kMaxWidth = 0x1p30;

struct Widths {
  explicit Widths(const OperatorCall& op)
      : start(op.Int("padding_width")), end(op.Int("end_padding_width") < 0 ? start : op.Int("end_padding_width")) {}

  std::int64_t both() const { return start + end; }

  std::int64_t start;
  std::int64_t end;
};

Operator WithWidths(Operator op) {
  return std::move(
      op.Arg("padding_width", 1, "rows in front of each sequence", Between(0, kMaxWidth))
          .Arg("end_padding_width", -1, "rows behind each sequence; -1: padding_width", Between(-1, kMaxWidth)));
}

// The sequences that lie in the rows of a tensor: one over all of them where there are no lengths.
class Sequences {
 public:
  // Each must have `min_rows` rows, and all of them the `rows` that there are.
  Sequences(const OpRun& run, std::int64_t rows, const std::string& lengths_name, std::int64_t min_rows) : rows_(rows) {
    if (run.num_inputs() > 1) {
      lengths_.emplace(run, 1, lengths_name, std::numeric_limits<std::int32_t>::max(), rows);
      fit_ = lengths_->sum() == rows;
    }
    for (std::int64_t i = 0; fit_ && i < count(); ++i) {
      if ((*this)[i] >= min_rows) continue;
      fit_ = false;
      run.Fault(run.num_inputs() > 1 ? 1 : 0, i, [&](std::int64_t) {
        return Error(ErrorCode::kInvalidArgument, StrCat("sequence ", i, " has ", (*this)[i], " rows, fewer than the ",
                                                         min_rows, " of its padding"));
      });
    }
  }
  // Otherwise there is a fault, and no telling where the sequences lie.
  bool fit() const { return fit_; }
  std::int64_t count() const { return lengths_ ? lengths_->count() : 1; }
  std::int64_t operator[](std::int64_t i) const { return lengths_ ? (*lengths_)[i] : rows_; }

 private:
  std::int64_t rows_;
  std::optional<Lengths> lengths_;
  bool fit_ = true;
};

void ClearOutputs(const OpRun& run) {
  for (int o = 0; o < run.num_outputs(); ++o) ClearElements(run.Out(o).dtype, At(run.Out(o), 0), run.Out(o).size());
}

// [N + rows more a sequence, …] and the lengths.
std::vector<TensorInfo> PaddedShapes(const ShapeQuery& query, std::int64_t more) {
  const TensorInfo& x = query.In(0);
  if (x.shape.rank() < 1) {
    throw WrongInputs(query, {0}, "needs x [N, …]");
  }
  const bool has_lengths = query.num_inputs() > 1;
  if (has_lengths) CheckLengthsInfo(query, 1, -1);
  const std::int64_t count = has_lengths ? query.In(1).shape[0] : 1;
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(count, more, &rows) || __builtin_add_overflow(rows, x.shape[0], &rows) || rows < 0) {
    throw WrongInputs(query, {0}, StrCat("cannot give ", count, " sequences ", more, " rows more"));
  }
  return {{.dtype = x.dtype, .shape = x.shape.With(0, rows)}, {.dtype = DType::kInt32, .shape = Shape({count})}};
}

void WriteLengths(const OpRun& run, const Sequences& sequences, std::int64_t more) {
  if (run.num_outputs() < 2) return;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    run.Out(1).As<std::int32_t>()[i] = static_cast<std::int32_t>(sequences[i] + more);
  }
}

std::vector<TensorInfo> AddPaddingShapes(const ShapeQuery& query) {
  for (int i = 2; i < query.num_inputs(); ++i) {
    ExpectSameType(query, 0, i);
    if (query.In(0).shape.rank() > 0 && query.In(i).shape.size() == query.In(0).shape.SizeFrom(1)) continue;
    throw WrongInputs(query, {0, i}, "needs x [N, R…] and padding [R…]");
  }
  return PaddedShapes(query, Widths(query.op()).both());
}

// Writes `width` rows: the padding, or zeros.
std::byte* Pad(const OpRun& run, int input, std::int64_t width, std::int64_t row, std::byte* to) {
  const DType dtype = run.Out(0).dtype;
  if (input < run.num_inputs()) {
    CopyRuns(dtype, At(run.In(input), 0), 0, to, row, row, width);
  } else {
    ClearElements(dtype, to, width * row);
  }
  return to + width * row * DTypeBytes(dtype);
}

void RunAddPadding(const OpRun& run, const Widths& widths, const Sequences& sequences) {
  const TensorView& x = run.In(0);
  const std::int64_t row = x.shape->SizeFrom(1);
  std::int64_t from = 0;
  std::byte* to = At(run.Out(0), 0);
  const int end_input = run.num_inputs() > 3 ? 3 : 2;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    to = Pad(run, 2, widths.start, row, to);
    CopyRuns(x.dtype, At(x, from * row), row, to, row, row, sequences[i]);
    to += sequences[i] * row * DTypeBytes(x.dtype);
    from += sequences[i];
    to = Pad(run, end_input, widths.end, row, to);
  }
  WriteLengths(run, sequences, widths.both());
}

void RunRemovePadding(const OpRun& run, const Widths& widths, const Sequences& sequences) {
  const TensorView& x = run.In(0);
  const std::int64_t row = x.shape->SizeFrom(1);
  std::int64_t from = 0;
  std::int64_t to = 0;
  for (std::int64_t i = 0; i < sequences.count(); ++i) {
    const std::int64_t rows = sequences[i] - widths.both();
    CopyRuns(x.dtype, At(x, (from + widths.start) * row), row, At(run.Out(0), to * row), row, row, rows);
    from += sequences[i];
    to += rows;
  }
  WriteLengths(run, sequences, -widths.both());
}

void RunGatherPadding(const OpRun& run, const Widths& widths, const Sequences& sequences) {
  const TensorView& x = run.In(0);
  const std::int64_t row = x.shape->SizeFrom(1);
  ForFloatType(x.dtype, "GatherPadding", [&](auto zero) {
    using T = decltype(zero);
    for (int o = 0; o < run.num_outputs(); ++o) std::fill_n(run.Out(o).As<T>(), row, T{0});
    const auto add = [row](const T* from, std::int64_t width, T* sum) {
      for (std::int64_t k = 0; k < width; ++k, from += row) {
        CountWork(row);
        for (std::int64_t j = 0; j < row; ++j) sum[j] += from[j];
      }
    };
    const T* from = x.As<T>();
    for (std::int64_t i = 0; i < sequences.count(); ++i) {
      add(from, widths.start, run.Out(0).As<T>());
      from += sequences[i] * row;
      add(from - widths.end * row, widths.end, run.Out(run.num_outputs() - 1).As<T>());
    }
  });
}

// A kernel on the sequences of input 0, which have their padding or are yet to get it.
Kernel OfSequences(void (*kernel)(const OpRun&, const Widths&, const Sequences&), bool are_padded) {
  return {.make = [=](const OperatorCall& op) -> RunFn {
            return [=, widths = Widths(op), name = op.num_inputs() > 1 ? op.inputs()[1] : ""](const OpRun& run) {
              const Sequences sequences(run, run.In(0).dim(0), name, are_padded ? widths.both() : 0);
              sequences.fit() ? kernel(run, widths, sequences) : ClearOutputs(run);
            };
          },
          .checks_values = true};
}

// The gradients of both operators read the lengths that the forward operator wrote.
std::vector<std::string> GradientInputs(const GradientBuilder& g) {
  std::vector<std::string> inputs = {g.GO(0)};
  if (g.op().num_inputs() < 2) return inputs;
  if (g.op().num_outputs() < 2) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat("the gradient of ", g.op().type(), " needs the new lengths, a second output"));
  }
  inputs.push_back(g.O(1));
  return inputs;
}

const Registration add_padding =
    WithWidths(Operator("AddPadding"))
        .Doc("Puts padding_width rows in front of each sequence and end_padding_width behind it.")
        .Input("x", "[N, R…], any dtype: sequences one behind the other")
        .OptionalInput("lengths", "int32 [S], adding up to N; without it all is one sequence")
        .OptionalInput("start_padding", "[R…]; zeros without it")
        .OptionalInput("end_padding", "[R…]; start_padding without it")
        .Output("y", "[N + S * (padding_width + end_padding_width), R…]")
        .OptionalOutput("new_lengths", "int32 [S]")
        .Shapes(AddPaddingShapes)
        .Gradient([](GradientBuilder& g) {
          const std::vector<std::string> inputs = GradientInputs(g);
          g.Add({.type = "RemovePadding", .inputs = inputs, .outputs = {g.GI(0)}});
          if (g.op().num_inputs() < 3) return;
          GradientOp gather{.type = "GatherPadding", .inputs = inputs, .outputs = {}};
          for (int i = 2; i < g.op().num_inputs(); ++i) gather.outputs.push_back(g.GI(i));
          g.Add(std::move(gather));
        })
        .Cpu(OfSequences(RunAddPadding, /*are_padded=*/false));

const Registration remove_padding =
    WithWidths(Operator("RemovePadding"))
        .Doc("Takes padding_width rows in front of each sequence away and end_padding_width behind it.")
        .Input("x", "[N, R…], any dtype: sequences one behind the other, each at least as long as its padding")
        .OptionalInput("lengths", "int32 [S], adding up to N; without it all is one sequence")
        .Output("y", "[N - S * (padding_width + end_padding_width), R…]")
        .OptionalOutput("new_lengths", "int32 [S]")
        .Shapes([](const ShapeQuery& query) { return PaddedShapes(query, -Widths(query.op()).both()); })
        .Gradient([](GradientBuilder& g) {
          g.Add({.type = "AddPadding", .inputs = GradientInputs(g), .outputs = {g.GI(0)}});
        })
        .Cpu(OfSequences(RunRemovePadding, /*are_padded=*/true));

const Registration gather_padding =
    WithWidths(Operator("GatherPadding"))
        .Doc("Adds up the padding of all sequences, row upon row.")
        .Input("x", "[N, R…], float or double: padded sequences one behind the other")
        .OptionalInput("lengths", "int32 [S], adding up to N; without it all is one sequence")
        .Output("padding_sum", "[R…]: the rows in front, and those behind where there is no second output")
        .OptionalOutput("end_padding_sum", "[R…]: the rows behind")
        .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
          ExpectFloat(query, 0);
          const TensorInfo& x = query.In(0);
          PaddedShapes(query, 0);
          return {{.dtype = x.dtype, .shape = x.shape.Tail()}, {.dtype = x.dtype, .shape = x.shape.Tail()}};
        })
        .Cpu(OfSequences(RunGatherPadding, /*are_padded=*/true));

}  // namespace
}  // namespace stepnet
