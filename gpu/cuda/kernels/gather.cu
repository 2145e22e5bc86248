// Gather and SparseToDense on a GPU. Rows that meet are added in the order of their indices, as on the CPU.
#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {
namespace {

// Indices that name rows of a table; others are faults.
struct RowIndices {
  Ints indices;
  std::int64_t rows;
  device::FaultSlot fault;

  static constexpr std::int64_t kNoRow = -1;
  __device__ std::int64_t At(std::int64_t i) const {
    const std::int64_t row = indices[i];
    return row >= 0 && row < rows ? row : kNoRow;
  }
  __device__ void Check(std::int64_t i) const {
    if (At(i) != kNoRow) return;
    device::NoteFault(fault, i, 0, device::Bits(static_cast<long long>(i)), device::Bits(indices[i]));
  }
  __device__ void operator()(std::int64_t i) const { Check(i); }
};

std::vector<Expr> RowRequirement(const OperatorCall& op, std::int64_t rows) {
  return {RequirementOf(StrCat(op.type(), ": element {} of the indices is {}; the data have ", rows, " rows"),
                        {DType::kInt64, DType::kInt64})};
}

template <typename T>
struct GatherElement {
  RowIndices indices;
  const T* data;
  T* y;
  std::int64_t row_size;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t k = i / row_size, row = indices.At(k);
    y[i] = row == RowIndices::kNoRow ? T{0} : data[row * row_size + i % row_size];
    if (i % row_size == 0) indices.Check(k);
  }
};

RunFn MakeGather(const OperatorCall& op) {
  return [op](const OpRun& run) {
    const TensorView &data = run.In(0), &indices = run.In(1);
    const std::int64_t row_size = data.shape->SizeFrom(1);
    const KernelFault fault(run, RowRequirement(op, data.dim(0)), indices.size());
    const RowIndices rows{Ints(indices), data.dim(0), SlotOf(fault)};
    if (row_size == 0) ForEach(run, indices.size(), rows);
    ForBits(data.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, run.Out(0).size(),
              GatherElement<T>{rows, static_cast<const T*>(data.data), static_cast<T*>(run.Out(0).data), row_size});
    });
    fault.Report();
  };
}

// The element behind i that names the same row, or -1; and whether none before it does.
struct FindNext {
  RowIndices indices;
  std::int64_t count;
  std::int64_t* next;
  bool* is_first;

  __device__ void operator()(std::int64_t i) const {
    indices.Check(i);
    const long long row = indices.indices[i];
    std::int64_t after = i + 1, before = i - 1;
    while (after < count && indices.indices[after] != row) ++after;
    while (before >= 0 && indices.indices[before] != row) --before;
    next[i] = after < count ? after : -1;
    is_first[i] = before < 0;
  }
};

template <typename T>
struct AddRowsElement {
  RowIndices indices;
  const std::int64_t* next;
  const bool* is_first;
  const T* values;
  T* y;
  std::int64_t row_size;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t first = i / row_size, column = i % row_size, row = indices.At(first);
    if (row == RowIndices::kNoRow || !is_first[first]) return;
    T sum = 0;
    for (std::int64_t k = first; k >= 0; k = next[k]) sum += values[k * row_size + column];
    y[row * row_size + column] = sum;
  }
};

RunFn MakeSparseToDense(const OperatorCall& op) {
  return [op](const OpRun& run) {
    const TensorView &indices = run.In(0), &out = run.Out(0);
    const std::int64_t row_size = out.shape->SizeFrom(1), count = indices.size();
    const KernelFault fault(run, RowRequirement(op, out.dim(0)), count);
    const RowIndices rows{Ints(indices), out.dim(0), SlotOf(fault)};
    auto* next = run.ScratchOf<std::int64_t>(count);
    auto* is_first = run.ScratchOf<bool>(count);
    ClearOutput(run, 0);
    ForEach(run, count, FindNext{rows, count, next, is_first});
    ForFloats(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEach(run, count * row_size, AddRowsElement<T>{rows, next, is_first, run.In(1).As<T>(), out.As<T>(), row_size});
    });
    fault.Report();
  };
}

const GpuKernel gather("Gather", {.make = MakeGather, .checks_values = true});
const GpuKernel sparse_to_dense("SparseToDense", {.make = MakeSparseToDense, .checks_values = true});

}  // namespace
}  // namespace stepnet
