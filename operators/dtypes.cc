#include "stepnet/operators/dtypes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/regions/region_copies.h"
#include "stepnet/core/target.h"
#include "stepnet/products/transpose_matrix.h"

namespace stepnet {

DType DTypeOfCode(std::int64_t code, const std::string& argument) {
  switch (code) {
    case 1: return DType::kFloat;
    case 2: return DType::kInt32;
    case 3:  // "byte"
    case 6: return DType::kUInt8;
    case 4: return DType::kString;
    case 5: return DType::kBool;
    case 7: return DType::kInt8;
    case 8: return DType::kUInt16;
    case 9: return DType::kInt16;
    case 10: return DType::kInt64;
    case 12: return DType::kFloat16;
    case 13: return DType::kDouble;
    case 1000: return DType::kBFloat16;
    default: break;
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(argument, " is ", code,
                     ", which is no dtype; dtypes are 1 float, 2 int32, 4 string, 5 bool, 6 uint8, 7 int8, 8 uint16, "
                     "9 int16, 10 int64, 12 float16, 13 double, 1000 bfloat16"));
}

namespace {

// Pieces of `kBytes`. The last one may copy some bytes again. REQUIRES: there is one at least.
template <std::int64_t kBytes>
void CopyPieces(const std::byte* from, std::byte* to, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes - kBytes; i += kBytes) std::memcpy(to + i, from + i, kBytes);
  std::memcpy(to + bytes - kBytes, from + bytes - kBytes, kBytes);
}

void CopyShortRun(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes >= 16) return CopyPieces<16>(from, to, bytes);
  if (bytes >= 4) return CopyPieces<4>(from, to, bytes);
  CopyPieces<1>(from, to, bytes);
}

}  // namespace

void CopyRuns(DType dtype, const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t length, std::int64_t rows) {
  if (length == 0) return;
  if (from_step == length && to_step == length) {
    length *= rows;
    rows = std::min<std::int64_t>(rows, 1);
  }
  if (dtype == DType::kString) {
    const auto* source = reinterpret_cast<const std::string*>(from);
    auto* target = reinterpret_cast<std::string*>(to);
    for (std::int64_t r = 0; r < rows; ++r) {
      InBlocks(length, kWorkOfString, [&](std::int64_t begin, std::int64_t end) {
        std::copy(source + r * from_step + begin, source + r * from_step + end, target + r * to_step + begin);
      });
    }
    return;
  }
  const std::int64_t bytes = DTypeBytes(dtype);
  if (length * bytes <= kCpuTarget.max_bytes_in_pieces) {
    return InBlocks(rows, length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        CopyShortRun(from + r * from_step * bytes, to + r * to_step * bytes, length * bytes);
      }
    });
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + (r * to_step + begin) * bytes, from + (r * from_step + begin) * bytes,
                  static_cast<size_t>((end - begin) * bytes));
    });
  }
}

namespace {

// Each of `count` elements `times` times.
void RepeatElements(std::int64_t bytes, const std::byte* from, std::byte* to, std::int64_t count, std::int64_t times) {
  InBlocks(count, times, [&](std::int64_t begin, std::int64_t end) {
    Spread(from + begin * bytes, to + begin * times * bytes, bytes, end - begin, times);
  });
}

// `dims` end with that of the runs, which are elements one after the other or, where it has no step, one that is
// repeated.
void CopyRunsOf(DType dtype, std::span<const BoxDim> dims, const std::byte* from, std::byte* to) {
  const BoxDim &dim = dims[0], &run = dims.back();
  const std::int64_t bytes = DTypeBytes(dtype);
  if (run.from_step == 0) {
    if (dims.size() == 1) return RepeatElements(bytes, from, to, 1, run.size);
    if (dims.size() == 2 && dim.from_step == 1 && dim.to_step == run.size) {
      return RepeatElements(bytes, from, to, dim.size, run.size);
    }
  } else {
    if (dims.size() == 1) return CopyRuns(dtype, from, run.size, to, run.size, run.size, 1);
    if (dims.size() == 2) return CopyRuns(dtype, from, dim.from_step, to, dim.to_step, run.size, dim.size);
  }
  for (std::int64_t i = 0; i < dim.size; ++i) {
    CopyRunsOf(dtype, dims.subspan(1), from + i * dim.from_step * bytes, to + i * dim.to_step * bytes);
  }
}

// A box whose last dimension is one of neighbours in memory where it is copied to, and `plane` where it is copied from.
template <typename T>
void TransposeBox(std::span<const BoxDim> dims, const BoxDim& plane, const T* from, T* to) {
  const BoxDim& dim = dims[0];
  if (&dim == &plane) return TransposeBox(dims.subspan(1), plane, from, to);
  if (dims.size() == 1) return TransposeMatrix(dim.size, plane.size, from, dim.from_step, to, plane.to_step);
  for (std::int64_t i = 0; i < dim.size; ++i) {
    TransposeBox(dims.subspan(1), plane, from + i * dim.from_step, to + i * dim.to_step);
  }
}

void TransposeBox(DType dtype, std::span<const BoxDim> dims, const BoxDim& plane, const std::byte* from,
                  std::byte* to) {
  const auto transpose = [&](auto zero) {
    using T = decltype(zero);
    TransposeBox(dims, plane, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  };
  if (dtype == DType::kString) return transpose(std::string());
  switch (DTypeBytes(dtype)) {
    case 1: return transpose(std::uint8_t{});
    case 2: return transpose(std::uint16_t{});
    case 4: return transpose(std::uint32_t{});
    default: return transpose(std::uint64_t{});
  }
}

}  // namespace

void CopyBox(DType dtype, std::span<const BoxDim> dims, const std::byte* from, std::byte* to) {
  std::array<BoxDim, Shape::kMaxRank + 1> merged;
  size_t count = 0;
  for (const BoxDim& dim : dims) {
    if (dim.size == 0) return;
    if (dim.size == 1) continue;
    BoxDim* const last = count > 0 ? &merged[count - 1] : nullptr;
    if (last != nullptr && last->from_step == dim.size * dim.from_step && last->to_step == dim.size * dim.to_step) {
      *last = {.size = last->size * dim.size, .from_step = dim.from_step, .to_step = dim.to_step};
    } else {
      merged[count++] = dim;
    }
  }
  const auto is_run = [&](const BoxDim& dim) {
    const bool repeats = dim.from_step == 0 && dtype != DType::kString;
    return dim.to_step == 1 && (dim.from_step == 1 || repeats);
  };
  const bool ends_with_runs = count > 0 && is_run(merged[count - 1]);
  if (count > 1 && !ends_with_runs && merged[count - 1].to_step == 1) {
    const std::span<const BoxDim> moved = std::span(merged).first(count);
    const auto plane = std::ranges::find(moved, 1, &BoxDim::from_step);
    if (plane != moved.end()) return TransposeBox(dtype, moved, *plane, from, to);
  }
  if (!ends_with_runs) merged[count++] = {.size = 1, .from_step = 1, .to_step = 1};
  // As many short runs as can be are one call.
  const bool is_short = count == 3 && merged[2].size * DTypeBytes(dtype) <= kCpuTarget.max_bytes_in_pieces;
  if (is_short && merged[0].size > merged[1].size) std::swap(merged[0], merged[1]);
  CopyRunsOf(dtype, std::span(merged).first(count), from, to);
}

void ClearElements(DType dtype, std::byte* to, std::int64_t n) {
  if (dtype == DType::kString) {
    auto* target = reinterpret_cast<std::string*>(to);
    InBlocks(n, kWorkOfString,
             [&](std::int64_t begin, std::int64_t end) { std::fill(target + begin, target + end, std::string()); });
  } else {
    const std::int64_t bytes = DTypeBytes(dtype);
    InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
      std::memset(to + begin * bytes, 0, static_cast<size_t>((end - begin) * bytes));
    });
  }
}

}  // namespace stepnet
