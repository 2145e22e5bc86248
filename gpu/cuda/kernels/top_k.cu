// TopK, ArgMax and ArgMin on a GPU: each thread looks at every 64th element of a row along the dimension, and then one
// thread a row at what they found.
#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

// Rows along a dimension: element j of row `line` stands at First(line) + j * after.
struct Lines {
  Lines(const Shape& x, std::int64_t axis_argument) {
    const int axis = x.CanonicalAxis(axis_argument);
    size = x[axis];
    after = x.SizeFrom(axis + 1);
    count = x.SizeTo(axis) * after;
  }
  __device__ std::int64_t First(std::int64_t line, std::int64_t size_of_line) const {
    return line / after * size_of_line * after + line % after;
  }
  std::int64_t size, after, count;
};

// Whether element i, which is a, comes before element j: the first of equal ones does, and NaN before all numbers.
template <typename T>
__device__ bool ComesBefore(T a, std::int64_t i, T b, std::int64_t j, bool is_least) {
  if (a != a || b != b) return a != a && (b == b || i < j);
  return (is_least ? a < b : a > b) || (a == b && i < j);
}

constexpr std::int64_t kParts = 64;
constexpr std::int64_t kNone = -1;

// Part p of a row: the first of elements p, p + 64, …, as many as it keeps, in their order; none where there are no
// more.
template <typename T>
struct FirstOfPart {
  Lines lines;
  const T* x;
  std::int64_t kept;
  bool is_least;
  std::int64_t* found;

  __device__ void operator()(std::int64_t i) const {
    const T* line = x + lines.First(i / kParts, lines.size);
    std::int64_t last = kNone;
    for (std::int64_t n = 0; n < kept; ++n) {
      std::int64_t best = kNone;
      for (std::int64_t j = i % kParts; j < lines.size; j += kParts) {
        const T value = line[j * lines.after];
        const bool is_left = last == kNone || ComesBefore(line[last * lines.after], last, value, j, is_least);
        if (is_left && (best == kNone || ComesBefore(value, j, line[best * lines.after], best, is_least))) best = j;
      }
      found[i * kept + n] = best;
      if (best == kNone) return FillRest(i, n);
      last = best;
    }
  }
  __device__ void FillRest(std::int64_t i, std::int64_t n) const {
    for (; n < kept; ++n) found[i * kept + n] = kNone;
  }
};

template <typename T>
struct MergeParts {
  Lines lines;
  const T* x;
  std::int64_t k;
  std::int64_t kept;
  bool is_least;
  const std::int64_t* found;  // what each part keeps
  T* values;                  // null: nobody wants them
  std::int64_t* indices;
  std::int64_t* flat;

  __device__ void operator()(std::int64_t line) const {
    const std::int64_t first = lines.First(line, lines.size), to = lines.First(line, k);
    int taken[kParts] = {};
    for (std::int64_t n = 0; n < k; ++n) {
      std::int64_t best = kNone, best_part = 0;
      for (std::int64_t p = 0; p < kParts; ++p) {
        const std::int64_t j = taken[p] < kept ? found[(line * kParts + p) * kept + taken[p]] : kNone;
        if (j == kNone) continue;
        if (best == kNone ||
            ComesBefore(x[first + j * lines.after], j, x[first + best * lines.after], best, is_least)) {
          best = j;
          best_part = p;
        }
      }
      ++taken[best_part];
      const std::int64_t at = to + n * lines.after;
      indices[at] = best;
      if (values != nullptr) values[at] = best == kNone ? T{0} : x[first + best * lines.after];
      if (flat != nullptr) flat[at] = best == kNone ? kNone : first + best * lines.after;
    }
  }
};

template <typename T>
void FindFirst(const OpRun& run, const Lines& lines, std::int64_t k, bool is_least, T* values, std::int64_t* indices,
               std::int64_t* flat) {
  const T* x = run.In(0).As<T>();
  const std::int64_t kept = std::min(k, (lines.size + kParts - 1) / kParts);
  auto* found = run.ScratchOf<std::int64_t>(lines.count * kParts * kept);
  ForEach(run, lines.count * kParts, FirstOfPart<T>{lines, x, kept, is_least, found});
  ForEach(run, lines.count, MergeParts<T>{lines, x, k, kept, is_least, found, values, indices, flat});
}

RunFn MakeTopK(const OperatorCall& op) {
  return [axis = op.Int("axis"), k = op.Int("k")](const OpRun& run) {
    ForFloats(run.In(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      FindFirst<T>(run, Lines(*run.In(0).shape, axis), k, false, run.Out(0).As<T>(), run.Out(1).As<std::int64_t>(),
                   run.num_outputs() > 2 ? run.Out(2).As<std::int64_t>() : nullptr);
    });
  };
}

KernelFactory MakeArg(bool is_least) {
  return [is_least](const OperatorCall& op) -> RunFn {
    return [is_least, axis = op.Int("axis")](const OpRun& run) {
      ForFloats(run.In(0).dtype, [&](auto zero) {
        using T = decltype(zero);
        FindFirst<T>(run, Lines(*run.In(0).shape, axis), 1, is_least, nullptr, run.Out(0).As<std::int64_t>(), nullptr);
      });
    };
  };
}

struct CheckPlace {
  const std::int64_t* indices;
  std::int64_t size;
  device::FaultSlot fault;

  __device__ void operator()(std::int64_t i) const {
    if (indices[i] >= -1 && indices[i] < size) return;
    device::NoteFault(fault, i, 0, device::Bits(static_cast<long long>(i)),
                      device::Bits(static_cast<long long>(indices[i])));
  }
};
// An element of dx: the last of the values that were found there.
template <typename T>
struct TopKGradientElement {
  Lines lines;  // of x
  std::int64_t k;
  const T* dvalues;
  const std::int64_t* indices;
  T* dx;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t j = i / lines.after % lines.size;
    const std::int64_t line = i / (lines.after * lines.size) * lines.after + i % lines.after;
    const std::int64_t first = lines.First(line, k);
    T value = 0;
    for (std::int64_t n = 0; n < k; ++n) {
      if (indices[first + n * lines.after] == j) value = dvalues[first + n * lines.after];
    }
    dx[i] = value;
  }
};

RunFn MakeTopKGradient(const OperatorCall& op) {
  return [axis = op.Int("axis"), k = op.Int("k")](const OpRun& run) {
    const Lines lines(*run.Out(0).shape, axis);
    const KernelFault fault(
        run,
        {RequirementOf(StrCat("element {} of the indices is {}; the dimension is of size ", lines.size),
                       {DType::kInt64, DType::kInt64})},
        run.In(1).size());
    const auto* indices = run.In(1).As<std::int64_t>();
    ForEach(run, run.In(1).size(), CheckPlace{indices, lines.size, SlotOf(fault)});
    ForFloats(run.Out(0).dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(), TopKGradientElement<T>{lines, k, run.In(0).As<T>(), indices, run.Out(0).As<T>()});
    });
    fault.Report();
  };
}

const GpuKernel top_k("TopK", {.make = MakeTopK});
const GpuKernel top_k_gradient("TopKGradient", {.make = MakeTopKGradient, .checks_values = true});
const GpuKernel arg_max("ArgMax", {.make = MakeArg(false)});
const GpuKernel arg_min("ArgMin", {.make = MakeArg(true)});

}  // namespace
}  // namespace stepnet
