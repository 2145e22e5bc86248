// Gather and SparseToDense on a GPU. Rows that meet are added in the order of their indices, as on the CPU.
#include "stepnet/gpu/cuda/kernels/sorted_rows.cuh"

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
  __device__ void operator()(std::int64_t i) const { CheckIndex(*this, i); }
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
    if (i % row_size == 0) CheckIndex(indices, k);
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

// The first place of each row adds up what lies at all of them, and writes the sum or adds it to what is there.
template <typename T>
struct AddRowsElement {
  SortedRows sorted;
  const T* values;
  T* y;
  std::int64_t row_size;
  bool adds;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t first = i / row_size, column = i % row_size;
    if (!sorted.IsFirst(first)) return;
    const std::int64_t end = sorted.EndOf(first);
    T sum = 0;
    // Many loads are under way at once: some rows are those of most indices.
#ifndef STEPNET_KERNELS_ON_HOST
#pragma unroll 16
#endif
    for (std::int64_t k = first; k < end; ++k) sum += values[sorted.places[k] * row_size + column];
    T& to = y[sorted.rows[first] * row_size + column];
    to = adds ? to + sum : sum;
  }
};

RunFn MakeSparseToDense(const OperatorCall& op) {
  return [op](const OpRun& run) {
    const TensorView &indices = run.In(0), &out = run.Out(0);
    const std::int64_t row_size = out.shape->SizeFrom(1), count = indices.size(), num_rows = out.dim(0);
    const KernelFault fault(run, RowRequirement(op, num_rows), count);
    if (!run.Adds(0)) ClearOutput(run, 0);
    if (count > 0) {
      const SortedRows sorted =
          SortRows(run, RowIndices{Ints(indices), num_rows, SlotOf(fault)}, count, "SparseToDense");
      ForFloats(out.dtype, [&](auto zero) {
        using T = decltype(zero);
        ForEach(run, count * row_size,
                AddRowsElement<T>{sorted, run.In(1).As<T>(), out.As<T>(), row_size, run.Adds(0)});
      });
    }
    fault.Report();
  };
}

const GpuKernel gather("Gather", {.make = MakeGather, .checks_values = true});
const GpuKernel sparse_to_dense("SparseToDense", {.make = MakeSparseToDense, .can_add = {0}, .checks_values = true});

}  // namespace
}  // namespace stepnet
