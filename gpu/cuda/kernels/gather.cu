// Gather and SparseToDense on a GPU. Rows that meet are added in the order of their indices, as on the CPU.
#ifndef STEPNET_KERNELS_ON_HOST
#include <cub/device/device_radix_sort.cuh>
#endif

#include <algorithm>
#include <bit>

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

// The rows that indices name, and where: before they are sorted. What names none is behind all others.
struct WriteRows {
  RowIndices indices;
  std::uint32_t* rows;
  std::uint32_t* places;

  __device__ void operator()(std::int64_t i) const {
    indices.Check(i);
    const std::int64_t row = indices.At(i);
    rows[i] = static_cast<std::uint32_t>(row == RowIndices::kNoRow ? indices.rows : row);
    places[i] = static_cast<std::uint32_t>(i);
  }
};

// The first place of each row adds up what lies at all of them, and writes the sum or adds it to what is there.
template <typename T>
struct AddRowsElement {
  const std::uint32_t* rows;  // sorted
  const std::uint32_t* places;
  std::int64_t count;
  std::int64_t num_rows;
  const T* values;
  T* y;
  std::int64_t row_size;
  bool adds;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t first = i / row_size, column = i % row_size, row = rows[first];
    if (row == num_rows || (first > 0 && rows[first - 1] == row)) return;
    const std::int64_t end = EndOf(first);
    T sum = 0;
    // Many loads are under way at once: some rows are those of most indices.
#ifndef STEPNET_KERNELS_ON_HOST
#pragma unroll 16
#endif
    for (std::int64_t k = first; k < end; ++k) sum += values[places[k] * row_size + column];
    T& to = y[row * row_size + column];
    to = adds ? to + sum : sum;
  }

 private:
  __device__ std::int64_t EndOf(std::int64_t first) const {
    std::int64_t begin = first + 1, end = count;
    while (begin < end) {
      const std::int64_t middle = (begin + end) / 2;
      if (rows[middle] == rows[first]) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

// Indices by the row that they name; those of one row keep their order.
struct SortedRows {
  std::uint32_t* rows;
  std::uint32_t* places;
};
SortedRows SortRows(const OpRun& run, const RowIndices& indices, std::int64_t count) {
  SortedRows from{run.ScratchOf<std::uint32_t>(count), run.ScratchOf<std::uint32_t>(count)};
  SortedRows to{run.ScratchOf<std::uint32_t>(count), run.ScratchOf<std::uint32_t>(count)};
  ForEach(run, count, WriteRows{indices, from.rows, from.places});
#ifdef STEPNET_KERNELS_ON_HOST
  std::copy_n(from.places, count, to.places);
  std::stable_sort(to.places, to.places + count, [&](auto a, auto b) { return from.rows[a] < from.rows[b]; });
  std::transform(to.places, to.places + count, to.rows, [&](auto place) { return from.rows[place]; });
#else
  const int bits = std::bit_width(static_cast<std::uint64_t>(indices.rows));
  size_t bytes = 0;
  const auto sort = [&](void* memory) {
    CheckCuda(cub::DeviceRadixSort::SortPairs(memory, bytes, from.rows, to.rows, from.places, to.places,
                                              static_cast<std::uint32_t>(count), 0, bits, StreamOf(run)),
              "the sort of the indices of SparseToDense");
  };
  sort(nullptr);
  sort(run.ScratchOf<char>(static_cast<std::int64_t>(bytes)));
#endif
  return to;
}

RunFn MakeSparseToDense(const OperatorCall& op) {
  return [op](const OpRun& run) {
    const TensorView &indices = run.In(0), &out = run.Out(0);
    const std::int64_t row_size = out.shape->SizeFrom(1), count = indices.size(), num_rows = out.dim(0);
    if (std::max(count, num_rows) >= std::int64_t{1} << 32) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("SparseToDense of ", count, " indices and ", num_rows, " rows; a GPU takes 4294967295"));
    }
    const KernelFault fault(run, RowRequirement(op, num_rows), count);
    if (!run.Adds(0)) ClearOutput(run, 0);
    if (count > 0) {
      const SortedRows sorted = SortRows(run, {Ints(indices), num_rows, SlotOf(fault)}, count);
      ForFloats(out.dtype, [&](auto zero) {
        using T = decltype(zero);
        ForEach(run, count * row_size,
                AddRowsElement<T>{sorted.rows, sorted.places, count, num_rows, run.In(1).As<T>(), out.As<T>(), row_size,
                                  run.Adds(0)});
      });
    }
    fault.Report();
  };
}

const GpuKernel gather("Gather", {.make = MakeGather, .checks_values = true});
const GpuKernel sparse_to_dense("SparseToDense", {.make = MakeSparseToDense, .can_add = {0}, .checks_values = true});

}  // namespace
}  // namespace stepnet
