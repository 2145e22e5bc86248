// Sequences of several lengths on a GPU: padding, packing, reversing, and ranges. The lengths are read there; what they
// must be is checked as on the CPU (operators/lengths.h).
#include <limits>

#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

enum Requirement { kLength, kSum, kMinimum };

struct Lengths {
  Ints lengths;
  std::int64_t count;
  std::int64_t limit;
  device::FaultSlot fault;

  // The nearest that is allowed.
  __device__ std::int64_t At(std::int64_t i) const {
    const std::int64_t length = lengths[i];
    return length < 0 ? 0 : length < limit ? length : limit;
  }
  __device__ void operator()(std::int64_t i) const {
    if (At(i) == lengths[i]) return;
    device::NoteFault(fault, i, kLength, device::Bits(static_cast<long long>(i)), device::Bits(lengths[i]));
  }
};

std::vector<Expr> Requirements(const std::string& name, std::int64_t limit, std::int64_t rows,
                               std::int64_t min_rows = 0) {
  const DType number = DType::kInt64;
  return {
      RequirementOf(StrCat("element {} of ", name, " is {}; lengths here are from 0 to ", limit), {number, number}),
      RequirementOf(StrCat("the lengths in ", name, " add up to {}, the data have ", rows, " rows"), {number}),
      RequirementOf(StrCat("sequence {} has {} rows, fewer than the ", min_rows, " of its padding"), {number, number})};
}

// Where the sequences begin that lie one behind the other.
struct Sequences {
  std::int64_t count;
  std::int64_t* starts;  // count + 1
  bool* fit;             // otherwise there is a fault, and no telling where they are

  __device__ std::int64_t Length(std::int64_t i) const { return starts[i + 1] - starts[i]; }
  // The sequence that row `row` is of, where each has `more` rows more than it has.
  __device__ std::int64_t Of(std::int64_t row, std::int64_t more) const {
    std::int64_t low = 0, high = count;  // the last that begins at the row or before it, and is not empty
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (starts[middle] + middle * more <= row ? low : high) = middle;
    }
    return low;
  }
};

// Adds lengths up, in one thread.
struct FindSequences {
  Lengths lengths;
  Sequences sequences;
  std::int64_t rows;  // that there are
  std::int64_t min_rows;
  bool has_lengths;

  __device__ void operator()(std::int64_t) const {
    std::int64_t at = 0;
    *sequences.fit = true;
    for (std::int64_t i = 0; i < sequences.count; ++i) {
      sequences.starts[i] = at;
      at += has_lengths ? lengths.At(i) : rows;
    }
    sequences.starts[sequences.count] = at;
    if (at != rows) {
      *sequences.fit = false;
      device::NoteFault(lengths.fault, sequences.count, kSum, device::Bits(static_cast<long long>(at)));
      return;
    }
    for (std::int64_t i = 0; i < sequences.count; ++i) {
      const long long length = sequences.Length(i);
      if (length >= min_rows) continue;
      *sequences.fit = false;
      device::NoteFault(lengths.fault, i, kMinimum, device::Bits(static_cast<long long>(i)), device::Bits(length));
      return;
    }
  }
};

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int32_t>::max();

std::int64_t NumSequences(const OpRun& run) { return run.num_inputs() > 1 ? run.In(1).size() : 1; }

// Those of input 1, or one over all rows.
Sequences SequencesOf(const OpRun& run, std::int64_t rows, std::int64_t min_rows, std::int64_t limit,
                      const KernelFault& fault) {
  const bool has_lengths = run.num_inputs() > 1;
  const std::int64_t count = NumSequences(run);
  const Sequences sequences{count, run.ScratchOf<std::int64_t>(count + 1), run.ScratchOf<bool>(1)};
  const Lengths lengths{has_lengths ? Ints(run.In(1)) : Ints(), count, limit, SlotOf(fault)};
  if (has_lengths) ForEach(run, count, lengths);
  ForEach(run, 1, FindSequences{lengths, sequences, rows, min_rows, has_lengths});
  return sequences;
}

// ---- padding

struct Widths {
  explicit Widths(const OperatorCall& op)
      : start(op.Int("padding_width")), end(op.Int("end_padding_width") < 0 ? start : op.Int("end_padding_width")) {}
  std::int64_t both() const { return start + end; }
  std::int64_t start, end;
};

template <typename T>
struct AddPaddingElement {
  Sequences sequences;
  std::int64_t start, both;
  std::int64_t row;
  const T* x;
  const T* start_padding;  // null: zeros
  const T* end_padding;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t column = i % row;
    if (!*sequences.fit) {
      y[i] = 0;
      return;
    }
    const std::int64_t of = sequences.Of(i / row, both);
    const std::int64_t t = i / row - sequences.starts[of] - of * both - start;
    if (t >= 0 && t < sequences.Length(of)) {
      y[i] = x[(sequences.starts[of] + t) * row + column];
    } else {
      const T* padding = t < 0 ? start_padding : end_padding;
      y[i] = padding == nullptr ? T{0} : padding[column];
    }
  }
};
template <typename T>
struct RemovePaddingElement {
  Sequences sequences;
  std::int64_t start, both;
  std::int64_t row;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    if (!*sequences.fit) {
      y[i] = 0;
      return;
    }
    const std::int64_t of = sequences.Of(i / row, -both);
    y[i] = x[(i / row + of * both + start) * row + i % row];
  }
};
struct NewLength {
  Sequences sequences;
  std::int64_t more;
  int* lengths;

  __device__ void operator()(std::int64_t i) const {
    lengths[i] = *sequences.fit ? static_cast<int>(sequences.Length(i) + more) : 0;
  }
};

KernelFactory MakePadding(bool adds) {
  return [adds](const OperatorCall& op) -> RunFn {
    return [adds, widths = Widths(op), name = op.num_inputs() > 1 ? op.inputs()[1] : ""](const OpRun& run) {
      const TensorView& x = run.In(0);
      const std::int64_t row = x.shape->SizeFrom(1), both = widths.both();
      const KernelFault fault(run, Requirements(name, kAnyLength, x.dim(0), both), NumSequences(run));
      const Sequences sequences = SequencesOf(run, x.dim(0), adds ? 0 : both, kAnyLength, fault);
      ForBits(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto input = [&](int i) {
          return i < run.num_inputs() ? static_cast<const T*>(run.In(i).data) : nullptr;
        };
        auto* y = static_cast<T*>(run.Out(0).data);
        if (adds) {
          ForEach(run, run.Out(0).size(),
                  AddPaddingElement<T>{sequences, widths.start, both, row, input(0), input(2),
                                       input(run.num_inputs() > 3 ? 3 : 2), y});
        } else {
          ForEach(run, run.Out(0).size(), RemovePaddingElement<T>{sequences, widths.start, both, row, input(0), y});
        }
      });
      if (run.num_outputs() > 1) {
        ForEach(run, sequences.count, NewLength{sequences, adds ? both : -both, run.Out(1).As<std::int32_t>()});
      }
      fault.Report();
    };
  };
}

template <typename T>
struct SumOfPadding {
  Sequences sequences;
  std::int64_t start, end;
  std::int64_t row;
  const T* x;
  T* start_sum;
  T* end_sum;  // may be the same

  __device__ void operator()(std::int64_t column) const {
    T sums[2] = {0, 0};
    T& last = sums[start_sum == end_sum ? 0 : 1];
    for (std::int64_t i = 0; *sequences.fit && i < sequences.count; ++i) {
      const std::int64_t begin = sequences.starts[i], stop = sequences.starts[i + 1];
      for (std::int64_t k = begin; k < begin + start; ++k) sums[0] += x[k * row + column];
      for (std::int64_t k = stop - end; k < stop; ++k) last += x[k * row + column];
    }
    start_sum[column] = sums[0];
    end_sum[column] = last;
  }
};

RunFn MakeGatherPadding(const OperatorCall& op) {
  return [widths = Widths(op), name = op.num_inputs() > 1 ? op.inputs()[1] : ""](const OpRun& run) {
    const TensorView& x = run.In(0);
    const std::int64_t row = x.shape->SizeFrom(1);
    const KernelFault fault(run, Requirements(name, kAnyLength, x.dim(0), widths.both()), NumSequences(run));
    const Sequences sequences = SequencesOf(run, x.dim(0), widths.both(), kAnyLength, fault);
    ForFloats(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, row,
              SumOfPadding<T>{sequences, widths.start, widths.end, row, x.As<T>(), run.Out(0).As<T>(),
                              run.Out(run.num_outputs() - 1).As<T>()});
    });
    fault.Report();
  };
}

// ---- packed batches

template <typename T>
struct PackElement {
  Sequences sequences;
  std::int64_t row;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t b = i / row % sequences.count, t = i / row / sequences.count;
    const bool is_there = *sequences.fit && t < sequences.Length(b);
    y[i] = is_there ? x[(sequences.starts[b] + t) * row + i % row] : T{0};
  }
};
template <typename T>
struct UnpackElement {
  Sequences sequences;
  std::int64_t row;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    if (!*sequences.fit) {
      y[i] = 0;
      return;
    }
    const std::int64_t b = sequences.Of(i / row, 0);
    const std::int64_t t = i / row - sequences.starts[b];
    y[i] = x[(t * sequences.count + b) * row + i % row];
  }
};

KernelFactory MakePack(bool packs) {
  return [packs](const OperatorCall& op) -> RunFn {
    return [packs, name = op.inputs()[1]](const OpRun& run) {
      const TensorView &packed = packs ? run.Out(0) : run.In(0), &flat = packs ? run.In(0) : run.Out(0);
      const KernelFault fault(run, Requirements(name, packed.dim(0), flat.dim(0)), NumSequences(run));
      const Sequences sequences = SequencesOf(run, flat.dim(0), 0, packed.dim(0), fault);
      const std::int64_t row = flat.shape->SizeFrom(1);
      ForBits(flat.dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto* x = static_cast<const T*>(run.In(0).data);
        auto* y = static_cast<T*>(run.Out(0).data);
        if (packs) {
          ForEach(run, run.Out(0).size(), PackElement<T>{sequences, row, x, y});
        } else {
          ForEach(run, run.Out(0).size(), UnpackElement<T>{sequences, row, x, y});
        }
      });
      fault.Report();
    };
  };
}

template <typename T>
struct ReverseElement {
  Lengths lengths;  // of no data: all are as long as there are steps
  std::int64_t steps;
  std::int64_t row;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t b = i / row % lengths.count, t = i / row / lengths.count;
    const std::int64_t length = lengths.lengths.data == nullptr ? steps : lengths.At(b);
    const std::int64_t from = t < length ? length - 1 - t : t;
    y[i] = x[(from * lengths.count + b) * row + i % row];
  }
};

RunFn MakeReverse(const OperatorCall& op) {
  return [name = op.num_inputs() > 1 ? op.inputs()[1] : ""](const OpRun& run) {
    const TensorView& x = run.In(0);
    const bool has_lengths = run.num_inputs() > 1;
    const KernelFault fault(run, Requirements(name, x.dim(0), x.dim(0)), x.dim(1));
    const Lengths lengths{has_lengths ? Ints(run.In(1)) : Ints(), x.dim(1), x.dim(0), SlotOf(fault)};
    if (has_lengths) ForEach(run, lengths.count, lengths);
    ForBits(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, x.size(),
              ReverseElement<T>{lengths, x.dim(0), x.shape->SizeFrom(2), static_cast<const T*>(x.data),
                                static_cast<T*>(run.Out(0).data)});
    });
    if (has_lengths) fault.Report();
  };
}

// ---- FillPadding

constexpr std::int64_t kNoRow = -1;

// The first row of each sequence that counts.
struct FindFirstRow {
  const bool* mask;
  std::int64_t steps;
  std::int64_t count;
  std::int64_t* first;

  __device__ void operator()(std::int64_t b) const {
    std::int64_t t = 0;
    while (t < steps && !mask[t * count + b]) ++t;
    first[b] = t < steps ? t * count + b : kNoRow;
  }
};

template <typename T>
struct FillElement {
  const bool* mask;
  const std::int64_t* first;
  std::int64_t count;
  std::int64_t row;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const {
    std::int64_t from = i / row;
    if (!mask[from]) {
      from = first[from % count];
      for (std::int64_t b = 0; from == kNoRow && b < count; ++b) from = first[b];
    }
    y[i] = from == kNoRow ? T{} : x[from * row + i % row];
  }
};

template <typename T>
struct FillGradientElement {
  const bool* mask;
  const std::int64_t* first;
  std::int64_t steps;
  std::int64_t count;
  std::int64_t row;
  const T* dy;
  T* dx;

  // What comes back to the rows of sequence b that do not count.
  __device__ void AddPadding(std::int64_t b, std::int64_t column, T* sum) const {
    for (std::int64_t at = b; at < steps * count; at += count) {
      if (!mask[at]) *sum += dy[at * row + column];
    }
  }
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = i / row;
    T sum = mask[at] ? dy[i] : T{};
    if (mask[at]) {
      if (first[at % count] == at) AddPadding(at % count, i % row, &sum);
      std::int64_t of_others = 0;
      while (first[of_others] == kNoRow) ++of_others;
      for (std::int64_t b = 0; first[of_others] == at && b < count; ++b) {
        if (first[b] == kNoRow) AddPadding(b, i % row, &sum);
      }
    }
    dx[i] = sum;
  }
};

RunFn MakeFillPaddingGradient(const OperatorCall&) {
  return [](const OpRun& run) {
    const TensorView& dy = run.In(0);
    const bool* const mask = run.In(1).As<bool>();
    const std::int64_t steps = dy.dim(0), count = dy.dim(1);
    auto* const first = run.ScratchOf<std::int64_t>(count);
    ForEach(run, count, FindFirstRow{mask, steps, count, first});
    ForFloats(dy.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, dy.size(),
              FillGradientElement<T>{mask, first, steps, count, dy.shape->SizeFrom(2), dy.As<T>(), run.Out(0).As<T>()});
    });
  };
}

RunFn MakeFillPadding(const OperatorCall&) {
  return [](const OpRun& run) {
    const TensorView& x = run.In(0);
    const bool* const mask = run.In(1).As<bool>();
    const std::int64_t count = x.dim(1);
    auto* const first = run.ScratchOf<std::int64_t>(count);
    ForEach(run, count, FindFirstRow{mask, x.dim(0), count, first});
    ForBits(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, x.size(),
              FillElement<T>{mask, first, count, x.shape->SizeFrom(2), static_cast<const T*>(x.data),
                             static_cast<T*>(run.Out(0).data)});
    });
  };
}

// ---- LengthsRangeFill

struct RangeElement {
  Sequences sequences;
  int* y;

  __device__ void operator()(std::int64_t i) const {
    y[i] = *sequences.fit ? static_cast<int>(i - sequences.starts[sequences.Of(i, 0)]) : 0;
  }
};

RunFn MakeLengthsRange(const OperatorCall& op) {
  return [name = op.inputs()[0]](const OpRun& run) {
    // The shape rule has checked the lengths.
    const KernelFault fault(run, Requirements(name, kAnyLength, run.Out(0).size()), run.In(0).size());
    const std::int64_t count = run.In(0).size();
    const Sequences sequences{count, run.ScratchOf<std::int64_t>(count + 1), run.ScratchOf<bool>(1)};
    const Lengths lengths{Ints(run.In(0)), count, kAnyLength, SlotOf(fault)};
    ForEach(run, 1, FindSequences{lengths, sequences, run.Out(0).size(), 0, true});
    ForEach(run, run.Out(0).size(), RangeElement{sequences, run.Out(0).As<std::int32_t>()});
  };
}

const GpuKernel add_padding("AddPadding", {.make = MakePadding(true), .checks_values = true});
const GpuKernel remove_padding("RemovePadding", {.make = MakePadding(false), .checks_values = true});
const GpuKernel gather_padding("GatherPadding", {.make = MakeGatherPadding, .checks_values = true});
const GpuKernel pack("PackRNNSequence", {.make = MakePack(true), .checks_values = true});
const GpuKernel unpack("UnpackRNNSequence", {.make = MakePack(false), .checks_values = true});
const GpuKernel reverse("ReversePackedSegs", {.make = MakeReverse, .checks_values = true});
const GpuKernel fill_padding("FillPadding", {.make = MakeFillPadding});
const GpuKernel fill_padding_gradient("FillPaddingGradient", {.make = MakeFillPaddingGradient});
const GpuKernel lengths_range("LengthsRangeFill", {.make = MakeLengthsRange});

}  // namespace
}  // namespace stepnet
