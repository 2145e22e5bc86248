#include "stepnet/products/transpose_matrix.h"

#include <algorithm>

#include "stepnet/core/cancellation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/products/transpose_matrix.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void TransposeElements(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                       std::int64_t y_stride) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
  }
}

#if HWY_TARGET == HWY_SCALAR

template <typename T>
void TransposeColumns(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                      std::int64_t y_stride) {
  TransposeElements(rows, columns, x, x_stride, y, y_stride);
}

#else

// Eight rows and columns of 16 bits, in pairs that are turned around, then pairs of pairs, then halves.
HWY_INLINE void TransposeEight(const std::uint16_t* x, std::int64_t x_stride, std::uint16_t* y, std::int64_t y_stride) {
  const hn::FixedTag<std::uint16_t, 8> v;
  const hn::FixedTag<std::uint32_t, 4> of_pairs;
  const hn::FixedTag<std::uint64_t, 2> of_halves;
  using Pairs = hn::Vec<decltype(of_pairs)>;
  Pairs lower[4], upper[4];  // the first four columns of two rows, and the last four
  for (int i = 0; i < 4; ++i) {
    const auto a = hn::LoadU(v, x + 2 * i * x_stride), b = hn::LoadU(v, x + (2 * i + 1) * x_stride);
    lower[i] = hn::BitCast(of_pairs, hn::InterleaveLower(v, a, b));
    upper[i] = hn::BitCast(of_pairs, hn::InterleaveUpper(v, a, b));
  }
  const auto store = [&](Pairs first, Pairs last, std::int64_t column) HWY_ATTR {  // of rows, two columns each
    const auto a = hn::BitCast(of_halves, first), b = hn::BitCast(of_halves, last);
    hn::StoreU(hn::BitCast(v, hn::InterleaveLower(of_halves, a, b)), v, y + column * y_stride);
    hn::StoreU(hn::BitCast(v, hn::InterleaveUpper(of_halves, a, b)), v, y + (column + 1) * y_stride);
  };
  for (const bool is_upper : {false, true}) {
    const Pairs* const of = is_upper ? upper : lower;
    const std::int64_t column = is_upper ? 4 : 0;
    store(hn::InterleaveLower(of_pairs, of[0], of[1]), hn::InterleaveLower(of_pairs, of[2], of[3]), column);
    store(hn::InterleaveUpper(of_pairs, of[0], of[1]), hn::InterleaveUpper(of_pairs, of[2], of[3]), column + 2);
  }
}

// Blocks have as many rows and columns as 16 bytes hold elements: what wider vectors do is to take such blocks apart.
template <typename T>
HWY_INLINE void TransposeBlock(const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
  if constexpr (sizeof(T) == 2) {
    TransposeEight(x, x_stride, y, y_stride);
  } else {
    const hn::FixedTag<T, 16 / sizeof(T)> v;
    const auto a = hn::LoadU(v, x), b = hn::LoadU(v, x + x_stride);
    if constexpr (sizeof(T) == 8) {
      hn::StoreU(hn::InterleaveLower(v, a, b), v, y);
      hn::StoreU(hn::InterleaveUpper(v, a, b), v, y + y_stride);
    } else {
      const auto c = hn::LoadU(v, x + 2 * x_stride), d = hn::LoadU(v, x + 3 * x_stride);
      const auto ab_lower = hn::InterleaveLower(v, a, b), ab_upper = hn::InterleaveUpper(v, a, b);
      const auto cd_lower = hn::InterleaveLower(v, c, d), cd_upper = hn::InterleaveUpper(v, c, d);
      hn::StoreU(hn::ConcatLowerLower(v, cd_lower, ab_lower), v, y);
      hn::StoreU(hn::ConcatUpperUpper(v, cd_lower, ab_lower), v, y + y_stride);
      hn::StoreU(hn::ConcatLowerLower(v, cd_upper, ab_upper), v, y + 2 * y_stride);
      hn::StoreU(hn::ConcatUpperUpper(v, cd_upper, ab_upper), v, y + 3 * y_stride);
    }
  }
}

template <typename T>
void TransposeColumns(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                      std::int64_t y_stride) {
  constexpr auto kBlock = static_cast<std::int64_t>(16 / sizeof(T));
  const std::int64_t block_rows = rows / kBlock * kBlock, block_columns = columns / kBlock * kBlock;
  for (std::int64_t r = 0; r < block_rows; r += kBlock) {
    for (std::int64_t c = 0; c < block_columns; c += kBlock) {
      TransposeBlock(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
    }
  }
  TransposeElements(block_rows, columns - block_columns, x + block_columns, x_stride, y + block_columns * y_stride,
                    y_stride);
  TransposeElements(rows - block_rows, columns, x + block_rows * x_stride, x_stride, y + block_rows, y_stride);
}

#endif

template <typename T>
void TransposeTiles(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                    std::int64_t y_stride) {
  for (std::int64_t c = 0; c < columns; c += kTransposedColumns) {
    CountWork(kTransposedColumns * rows);
    TransposeColumns(rows, std::min(kTransposedColumns, columns - c), x + c, x_stride, y + c * y_stride, y_stride);
  }
}

void TransposeBitsForTarget(std::int64_t element_bytes, std::int64_t rows, std::int64_t columns, const void* x,
                            std::int64_t x_stride, void* y, std::int64_t y_stride) {
  const auto transpose = [&](auto zero) {
    using T = decltype(zero);
    TransposeTiles(rows, columns, static_cast<const T*>(x), x_stride, static_cast<T*>(y), y_stride);
  };
  switch (element_bytes) {
    case 2: return transpose(std::uint16_t{});
    case 4: return transpose(std::uint32_t{});
    default: return transpose(std::uint64_t{});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(TransposeBitsForTarget);

void TransposeBits(std::int64_t element_bytes, std::int64_t rows, std::int64_t columns, const void* x,
                   std::int64_t x_stride, void* y, std::int64_t y_stride) {
  if (rows == 0 || columns == 0) return;  // x and y may be null then
  HWY_DYNAMIC_DISPATCH(TransposeBitsForTarget)(element_bytes, rows, columns, x, x_stride, y, y_stride);
}

}  // namespace stepnet
#endif  // HWY_ONCE
