// Operators that move elements on a GPU, whatever they are. Transpose, Concat, Split and ConstantFill are here for what
// their expansions do not say: of dtypes that expressions do not have, and of more dimensions than a region has.
#include <span>
#include <vector>

#include "stepnet/gpu/cuda/kernels/elements.cuh"
#include "stepnet/operators/dim_groups.h"

namespace stepnet {
namespace {

// ---- Copy

template <typename T>
struct CopyWord {
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const { y[i] = x[i]; }
};

// Copies the widest words of which all of it consists. It is a kernel, since a copy of the queue would not ask for
// faults.
RunFn MakeCopy(const OperatorCall&) {
  return [](const OpRun& run) {
    const TensorView &x = run.In(0), &y = run.Out(0);
    const std::int64_t bytes = y.size_bytes();
    const auto multiple_of = reinterpret_cast<std::uintptr_t>(x.data) | reinterpret_cast<std::uintptr_t>(y.data) |
                             static_cast<std::uintptr_t>(bytes);
    const auto copy = [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, bytes / std::int64_t{sizeof(T)},
              CopyWord<T>{static_cast<const T*>(x.data), static_cast<T*>(y.data)});
    };
    multiple_of % sizeof(std::uint64_t) == 0 ? copy(std::uint64_t{}) : ForBits(y.dtype, copy);
  };
}

// ---- Slice

// The part of a tensor that a slice is.
struct Box {
  int rank = 0;
  std::int64_t sizes[Shape::kMaxRank] = {};  // of the whole
  std::int64_t begin[Shape::kMaxRank] = {};
  std::int64_t part[Shape::kMaxRank] = {};
  std::int64_t steps[Shape::kMaxRank] = {};

  // Where element i of the part is in the whole.
  __device__ std::int64_t InWhole(std::int64_t i) const {
    std::int64_t at = 0, step = 1;
    for (int d = rank - 1; d >= 0; --d) {
      at += (begin[d] + i % part[d] * steps[d]) * step;
      i /= part[d];
      step *= sizes[d];
    }
    return at;
  }
  // Where element i of the whole is in the part, or -1.
  __device__ std::int64_t InPart(std::int64_t i) const {
    std::int64_t at = 0, step = 1;
    for (int d = rank - 1; d >= 0; --d) {
      const std::int64_t from_begin = i % sizes[d] - begin[d], index = from_begin / steps[d];
      if (from_begin % steps[d] != 0 || index < 0 || index >= part[d]) return -1;
      at += index * step;
      i /= sizes[d];
      step *= part[d];
    }
    return at;
  }
};

// Starts and ends, of inputs or of arguments.
struct Bounds {
  std::int64_t count = 0;
  Ints read_starts, read_ends;  // where there are inputs
  bool reads = false;
  std::int64_t starts[Shape::kMaxRank] = {};
  std::int64_t ends[Shape::kMaxRank] = {};

  bool has_steps = false;  // then bounds are ONNX's
  std::int64_t steps[Shape::kMaxRank] = {};

  __device__ std::int64_t Start(int d) const { return reads ? read_starts[d] : starts[d]; }
  __device__ std::int64_t End(int d) const { return reads ? read_ends[d] : ends[d]; }
};
Bounds BoundsOf(const OperatorCall& op, const OpRun& run, bool by_inputs) {
  Bounds bounds;
  bounds.has_steps = !op.Ints("steps").empty();
  std::ranges::copy(op.Ints("steps"), bounds.steps);
  if (by_inputs) {
    bounds.count = run.In(1).size();
    bounds.read_starts = Ints(run.In(1));
    bounds.read_ends = Ints(run.In(2));
    bounds.reads = true;
    return bounds;
  }
  bounds.count = static_cast<std::int64_t>(op.Ints("starts").size());
  std::ranges::copy(op.Ints("starts"), bounds.starts);
  std::ranges::copy(op.Ints("ends"), bounds.ends);
  return bounds;
}

enum SliceRequirement { kIsRange, kIsOfPart };

std::vector<Expr> SliceRequirements(const Shape& whole, const Shape& part) {
  const std::vector<DType> values(3, DType::kInt64);
  const std::string slice = StrCat("Slice from {} to {} along dimension {} of a tensor ", whole, " is ");
  return {RequirementOf(slice + "no range", values),
          RequirementOf(StrCat(slice, "not what dy ", part, " is the gradient of"), values)};
}

// Writes where the slice begins, a thread for all of it. What does not fit the part is a fault, and takes no elements.
struct FindBox {
  Bounds bounds;
  Box box;  // without `begin`
  Box* found;
  device::FaultSlot fault;

  __device__ static std::int64_t Resolve(std::int64_t at, std::int64_t size) {
    const std::int64_t from_front = at < 0 ? at + size + 1 : at;
    return from_front < size ? from_front : size;
  }
  // Notes where x[start:end:step] begins, and gives how many elements it takes.
  __device__ std::int64_t CutSteps(int d, std::int64_t size) const {
    const std::int64_t step = bounds.steps[d], highest = step > 0 ? size : size - 1;
    const auto resolve = [&](std::int64_t at, std::int64_t lowest) {
      const std::int64_t from_front = at < 0 ? at + size : at;
      return from_front < lowest ? lowest : from_front > highest ? highest : from_front;
    };
    const std::int64_t first = resolve(bounds.Start(d), 0), past = resolve(bounds.End(d), step > 0 ? 0 : -1);
    const bool is_empty = step > 0 ? past <= first : past >= first;
    const std::int64_t count = is_empty ? 0 : 1 + (past - first - (step > 0 ? 1 : -1)) / step;
    if (count > 0) found->begin[d] = first;
    if (count > 1) found->steps[d] = step;
    return count;
  }
  __device__ void NoteBounds(int d, int requirement) const {
    device::NoteFault(fault, 0, requirement, device::Bits(static_cast<long long>(bounds.Start(d))),
                      device::Bits(static_cast<long long>(bounds.End(d))), device::Bits(static_cast<long long>(d)));
    for (int k = 0; k < box.rank; ++k) {
      found->begin[k] = box.sizes[k];
      found->steps[k] = 1;
    }
  }
  __device__ void operator()(std::int64_t) const {
    *found = box;
    int other = -1;  // the first dimension along which the part is another one
    for (int d = 0; d < bounds.count; ++d) {
      const std::int64_t size = box.sizes[d];
      if (size == 0) continue;
      std::int64_t count = 0;
      if (bounds.has_steps) {
        count = CutSteps(d, size);
      } else {
        const std::int64_t begin = Resolve(bounds.Start(d), size), end = Resolve(bounds.End(d), size);
        found->begin[d] = begin;
        if (begin < 0 || end < begin) return NoteBounds(d, kIsRange);
        count = end - begin;
      }
      if (other < 0 && count != box.part[d]) other = d;
    }
    if (other >= 0) NoteBounds(other, kIsOfPart);
  }
};

template <typename T>
struct SliceElement {
  const Box* box;
  const T* x;
  T* y;
  std::int64_t size_of_whole;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = box->InWhole(i);
    y[i] = at < size_of_whole ? x[at] : T{0};
  }
};
template <typename T>
struct SliceGradientElement {
  const Box* box;
  const T* dy;
  T* dx;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = box->InPart(i);
    dx[i] = at < 0 ? T{0} : dy[at];
  }
};

RunFn MakeSlice(const OperatorCall& op, bool is_gradient) {
  return [op, is_gradient](const OpRun& run) {
    const int last = run.num_inputs() - 1;
    const TensorView &whole = is_gradient ? run.Out(0) : run.In(0), &part = is_gradient ? run.In(last) : run.Out(0);
    const KernelFault fault(run, SliceRequirements(*whole.shape, *part.shape), 1);
    Box box{.rank = whole.rank()};
    std::ranges::copy(whole.shape->dims(), box.sizes);
    std::ranges::copy(part.shape->dims(), box.part);
    std::ranges::fill(box.steps, 1);
    Box* found = run.ScratchOf<Box>(1);
    ForEach(run, 1, FindBox{BoundsOf(op, run, last - (is_gradient ? 1 : 0) == 2), box, found, SlotOf(fault)});
    ForBits(whole.dtype, [&](auto zero) {
      using T = decltype(zero);
      auto *of_whole = static_cast<T*>(whole.data), *of_part = static_cast<T*>(part.data);
      if (is_gradient) {
        ForEach(run, whole.size(), SliceGradientElement<T>{found, of_part, of_whole});
      } else {
        ForEach(run, part.size(), SliceElement<T>{found, of_whole, of_part, whole.size()});
      }
    });
    // What Slice reads its shape rule has checked.
    if (is_gradient && last == 3) fault.Report();
  };
}

// ---- Tile and gradients of sums

// Element i of y is the one of x at the place of i.
template <typename T>
struct CopyPlace {
  Places places;
  const T* x;
  T* y;

  __device__ void operator()(std::int64_t i) const { y[i] = x[places(i)]; }
};

RunFn MakeTile(const OperatorCall& op) {
  return [axis = op.Int("axis"), tiles = op.Int("tiles")](const OpRun& run) {
    const Shape& x = *run.In(0).shape;
    const int first = x.CanonicalAxis(axis);
    const std::int64_t block = x.SizeFrom(first);
    Places places;
    places.Add(x.SizeTo(first), block);
    places.Add(tiles, 0);
    places.Add(block, 1);
    ForBits(run.In(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(),
              CopyPlace<T>{places, static_cast<const T*>(run.In(0).data), static_cast<T*>(run.Out(0).data)});
    });
  };
}

template <typename T>
struct RepeatScaled {
  Places places;
  const T* dy;
  T* dx;
  T factor;

  __device__ void operator()(std::int64_t i) const { dx[i] = factor * dy[places(i)]; }
};

KernelFactory MakeReduceGradient(bool average) {
  return [average](const OperatorCall& op) -> RunFn {
    return [average, axes = op.Ints("axes")](const OpRun& run) {
      const Shape& x = *run.In(1).shape;
      SummedDims summed = {};
      for (int d = 0; d < x.rank(); ++d) summed[d] = axes.empty();
      for (const std::int64_t axis : axes) summed[x.CanonicalAxis(axis, "axes")] = true;
      const DimGroups groups = GroupDims(x, summed);
      Places places;
      for (int g = 0; g < groups.count; ++g) {
        std::int64_t stride = groups.summed[g] ? 0 : 1;
        for (int k = g + 1; k < groups.count; ++k) stride *= groups.summed[k] ? 1 : groups.sizes[k];
        places.Add(groups.sizes[g], stride);
      }
      ForFloats(run.Out(0).dtype, [&](auto zero) {
        using T = decltype(zero);
        const T factor = average ? T{1} / static_cast<T>(groups.summed_size) : T{1};
        ForEach(run, run.Out(0).size(), RepeatScaled<T>{places, run.In(0).As<T>(), run.Out(0).As<T>(), factor});
      });
    };
  };
}

// ---- Transpose, Concat, Split

RunFn MakeTranspose(const OperatorCall& op) {
  return [axes = op.Ints("axes")](const OpRun& run) {
    const Shape& x = *run.In(0).shape;
    Places places;
    for (int d = 0; d < x.rank(); ++d) {
      const int axis = axes.empty() ? x.rank() - 1 - d : static_cast<int>(axes[static_cast<size_t>(d)]);
      places.Add(x[axis], x.SizeFrom(axis + 1));
    }
    ForBits(run.In(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(),
              CopyPlace<T>{places, static_cast<const T*>(run.In(0).data), static_cast<T*>(run.Out(0).data)});
    });
  };
}

// Columns of a matrix whose rows are `length` long, the first of them `first`, and a matrix of these columns alone.
template <typename T>
struct CopyColumns {
  T* whole;
  T* part;
  std::int64_t length, first, columns;
  bool to_part;

  __device__ void operator()(std::int64_t i) const {
    T& element = whole[i / columns * length + first + i % columns];
    if (to_part) {
      part[i] = element;
    } else {
      element = part[i];
    }
  }
};

// `count` whole numbers on the GPU.
template <typename T>
struct WriteInts {
  std::int64_t values[Shape::kMaxRank];
  T* out;

  __device__ void operator()(std::int64_t i) const { out[i] = static_cast<T>(values[i]); }
};
template <typename T>
void Write(const OpRun& run, std::span<const std::int64_t> values, T* out) {
  constexpr size_t kAtOnce = Shape::kMaxRank;
  for (size_t first = 0; first < values.size(); first += kAtOnce) {
    const std::span<const std::int64_t> some = values.subspan(first, std::min(values.size() - first, kAtOnce));
    WriteInts<T> write{.values = {}, .out = out + first};
    std::ranges::copy(some, write.values);
    ForEach(run, std::ssize(some), write);
  }
}

KernelFactory MakeColumns(bool joins) {
  return [joins](const OperatorCall& op) -> RunFn {
    const std::int64_t axis_argument = op.HasArg("axis") ? op.Int("axis") : op.String("order") == "NHWC" ? 3 : 1;
    return [joins, axis_argument, adds_axis = op.Bool("add_axis")](const OpRun& run) {
      const TensorView& whole = joins ? run.Out(0) : run.In(0);
      const int axis = whole.shape->CanonicalAxis(axis_argument);
      const std::int64_t before = whole.shape->SizeTo(axis), length = whole.shape->SizeFrom(axis);
      std::vector<std::int64_t> sizes;
      std::int64_t first = 0;
      for (int i = 0; i < (joins ? run.num_inputs() : run.num_outputs()); ++i) {
        const TensorView& part = joins ? run.In(i) : run.Out(i);
        sizes.push_back(adds_axis ? 1 : part.dim(axis));
        const std::int64_t columns = sizes.back() * whole.shape->SizeFrom(axis + 1);
        ForBits(whole.dtype, [&](auto zero) {
          using T = decltype(zero);
          ForEach(
              run, before * columns,
              CopyColumns<T>{static_cast<T*>(whole.data), static_cast<T*>(part.data), length, first, columns, !joins});
        });
        first += columns;
      }
      if (joins) Write(run, sizes, run.Out(1).As<std::int32_t>());
    };
  };
}

// ---- ConstantFill

template <typename T>
struct WriteBits {
  T value;
  T* y;
  __device__ void operator()(std::int64_t i) const { y[i] = value; }
};

RunFn MakeConstantFill(const OperatorCall& op) {
  return [op](const OpRun& run) {
    // One element, as the CPU makes it.
    const Tensor element(run.Out(0).dtype, {1});
    const TensorView out = element.View();
    RunContext context;
    op.schema().FindKernel(DeviceKind::kCpu)->make(op)(OpRun({}, {&out, 1}, context));
    ForBits(element.dtype(), [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(),
              WriteBits<T>{*static_cast<const T*>(element.raw()), static_cast<T*>(run.Out(0).data)});
    });
  };
}

// ---- Shape and Size

RunFn MakeShape(const OperatorCall& op) {
  return [op](const OpRun& run) {
    // What the shape rule knows of a shape alone.
    const TensorInfo x{.dtype = run.In(0).dtype, .shape = *run.In(0).shape};
    const Tensor sizes = op.schema().shapes(ShapeQuery(op, {&x, 1}))[0].value;
    Write(run, std::span(sizes.data<std::int64_t>(), static_cast<size_t>(sizes.size())), run.Out(0).As<std::int64_t>());
  };
}

const GpuKernel copy("Copy", {.make = MakeCopy, .stops_after_faults = true});
const GpuKernel transpose("Transpose", {.make = MakeTranspose});
const GpuKernel concat("Concat", {.make = MakeColumns(true)});
const GpuKernel split("Split", {.make = MakeColumns(false)});
const GpuKernel concat_gradient("ConcatGradient", {.make = MakeColumns(false)});
const GpuKernel constant_fill("ConstantFill", {.make = MakeConstantFill});
const GpuKernel slice("Slice", {.make = [](const OperatorCall& op) { return MakeSlice(op, false); }});
const GpuKernel slice_gradient("SliceGradient", {.make = [](const OperatorCall& op) { return MakeSlice(op, true); },
                                                 .checks_values = true});
const GpuKernel tile("Tile", {.make = MakeTile});
const GpuKernel sum_gradient("ReduceSumGradient", {.make = MakeReduceGradient(false)});
const GpuKernel mean_gradient("ReduceMeanGradient", {.make = MakeReduceGradient(true)});
const GpuKernel shape("Shape", {.make = MakeShape});
const GpuKernel size("Size", {.make = MakeShape});

}  // namespace
}  // namespace stepnet
