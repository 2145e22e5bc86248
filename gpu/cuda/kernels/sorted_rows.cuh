// Indices in the order of the rows that they name, so that one thread takes all that meet in a row, in their own order.
#pragma once

#ifndef STEPNET_KERNELS_ON_HOST
#include <cub/device/device_radix_sort.cuh>
#endif

#include <algorithm>
#include <bit>

#include "stepnet/gpu/cuda/kernels/elements.cuh"

namespace stepnet {

// Notes a fault where index `i` names no row. `Indices` has `indices`, what is given, `At(i)`, the row that is named or
// `kNoRow`, `rows`, how many there are, and `fault`, where faults are noted.
template <typename Indices>
__device__ void CheckIndex(const Indices& indices, std::int64_t i) {
  if (indices.At(i) != Indices::kNoRow) return;
  device::NoteFault(indices.fault, i, 0, device::Bits(static_cast<long long>(i)), device::Bits(indices.indices[i]));
}

// Row and place of each index, before they are sorted. What names no row is behind all others, and is a fault.
template <typename Indices>
struct WriteRows {
  Indices indices;
  std::uint32_t* rows;
  std::uint32_t* places;

  __device__ void operator()(std::int64_t i) const {
    CheckIndex(indices, i);
    const std::int64_t row = indices.At(i);
    rows[i] = static_cast<std::uint32_t>(row == Indices::kNoRow ? indices.rows : row);
    places[i] = static_cast<std::uint32_t>(i);
  }
};

// The rows that indices name, ascending, and which indices these are; those of one row keep their order.
struct SortedRows {
  std::uint32_t* rows;
  std::uint32_t* places;
  std::int64_t count;
  std::int64_t num_rows;

  // Whether index `i` is the first one of its row.
  __device__ bool IsFirst(std::int64_t i) const { return rows[i] != num_rows && (i == 0 || rows[i - 1] != rows[i]); }
  // The place behind the last index of the row that has its first one at `first`.
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

// Throws kInvalidArgument for more indices or rows than 32 bits count. `what` is the operator, for messages.
template <typename Indices>
SortedRows SortRows(const OpRun& run, const Indices& indices, std::int64_t count, const char* what) {
  if (std::max(count, indices.rows) >= std::int64_t{1} << 32) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(what, " of ", count, " indices and ", indices.rows, " rows; a GPU takes 4294967295"));
  }
  SortedRows from{run.ScratchOf<std::uint32_t>(count), run.ScratchOf<std::uint32_t>(count), count, indices.rows};
  SortedRows to{run.ScratchOf<std::uint32_t>(count), run.ScratchOf<std::uint32_t>(count), count, indices.rows};
  ForEach(run, count, WriteRows<Indices>{indices, from.rows, from.places});
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
              what);
  };
  sort(nullptr);
  sort(run.ScratchOf<char>(static_cast<std::int64_t>(bytes)));
#endif
  return to;
}

}  // namespace stepnet
