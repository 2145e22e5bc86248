// Copies of short rows are a vector or two each: to call for each of them what copies bytes would take longer.
#include "stepnet/core/regions/region_copies.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/regions/region_copies.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "stepnet/core/partial_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// The last vector of a row may write into the next ones, which come later, and never behind the last one.
template <typename D, typename T = hn::TFromD<D>>
void SpreadBy(D d, const T* from, T* to, std::int64_t rows, std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t beyond = (n + lanes - 1) / lanes * lanes - n;  // of a row
  const std::int64_t rows_to_keep = n == 0 ? rows : std::min(rows, (beyond + n - 1) / n);
  for (std::int64_t row = 0; row < rows; ++row, to += n) {
    const auto values = hn::Set(d, from[row]);
    const std::int64_t whole = row < rows - rows_to_keep ? n : n - lanes + 1;  // where vectors begin that are whole
    std::int64_t i = 0;
    for (; i < whole; i += lanes) hn::StoreU(values, d, to + i);
    if (i < n) StorePart(d, values, to + i, n - i);
  }
}

template <typename T>
void SpreadValues(const void* from, void* out, std::int64_t rows, std::int64_t n) {
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(out);
  if (n <= 4) return SpreadBy(hn::CappedTag<T, 4>(), x, y, rows, n);
  if (n <= 8) return SpreadBy(hn::CappedTag<T, 8>(), x, y, rows, n);
  SpreadBy(hn::ScalableTag<T>(), x, y, rows, n);
}

void SpreadForTarget(const void* from, void* out, std::int64_t bytes, std::int64_t rows, std::int64_t n) {
  if (bytes == 4) return SpreadValues<std::int32_t>(from, out, rows, n);
  if (bytes == 8) return SpreadValues<std::int64_t>(from, out, rows, n);
  if (bytes == 2) return SpreadValues<std::int16_t>(from, out, rows, n);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memset(static_cast<char*>(out) + row * n, static_cast<const char*>(from)[row], static_cast<size_t>(n));
  }
}

// Rows of n elements, at least one vector. The last vector of a row may copy some elements again.
template <typename D, typename T = hn::TFromD<D>>
void CopyRowsBy(D d, const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, std::int64_t n,
                std::int64_t rows) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    const T* const x = reinterpret_cast<const T*>(from);
    T* const y = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i + lanes < n; i += lanes) hn::StoreU(hn::LoadU(d, x + i), d, y + i);
    hn::StoreU(hn::LoadU(d, x + n - lanes), d, y + n - lanes);
  }
}

template <typename T>
void CopyRowsOf(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, std::int64_t n,
                std::int64_t rows) {
  const hn::ScalableTag<T> d;
  if (n >= static_cast<std::int64_t>(hn::Lanes(d))) return CopyRowsBy(d, from, from_stride, to, to_stride, n, rows);
  if (n >= 8) return CopyRowsBy(hn::CappedTag<T, 8>(), from, from_stride, to, to_stride, n, rows);
  if (n >= 4) return CopyRowsBy(hn::CappedTag<T, 4>(), from, from_stride, to, to_stride, n, rows);
  for (std::int64_t row = 0; row < rows; ++row, from += from_stride, to += to_stride) {
    for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i];
  }
}

void CopyRowsForTarget(const void* from, std::int64_t from_stride, void* to, std::int64_t to_stride, std::int64_t bytes,
                       std::int64_t n, std::int64_t rows) {
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  if (bytes == 4) return CopyRowsOf<std::int32_t>(x, from_stride, y, to_stride, n, rows);
  if (bytes == 8) return CopyRowsOf<std::int64_t>(x, from_stride, y, to_stride, n, rows);
  for (std::int64_t row = 0; row < rows; ++row, x += from_stride, y += to_stride) {
    std::memcpy(y, x, static_cast<size_t>(n * bytes));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SpreadForTarget);
HWY_EXPORT(CopyRowsForTarget);

namespace {

// Calls fn with an unsigned integer of so many bytes.
template <typename Fn>
void ForBytes(std::int64_t bytes, const Fn& fn) {
  if (bytes == 1) return fn(std::uint8_t{});
  if (bytes == 2) return fn(std::uint16_t{});
  if (bytes == 4) return fn(std::uint32_t{});
  fn(std::uint64_t{});
}

void CopyRows(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, const BlockRows& rows) {
  if (rows.columns == 0) return;
  const std::int64_t row_bytes = rows.columns * rows.bytes;
  if (from_stride == row_bytes && to_stride == row_bytes) {
    std::memcpy(to, from, static_cast<size_t>(rows.rows * row_bytes));
    return;
  }
  HWY_DYNAMIC_DISPATCH(CopyRowsForTarget)(from, from_stride, to, to_stride, rows.bytes, rows.columns, rows.rows);
}

// A row whose columns are `from_stride` and `to_stride` elements from each other.
void CopyStrided(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, const BlockRows& rows) {
  ForBytes(rows.bytes, [&](auto zero) {
    using T = decltype(zero);
    const T* x = reinterpret_cast<const T*>(from);
    T* y = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i < rows.columns; ++i) y[i * to_stride] = x[i * from_stride];
  });
}

}  // namespace

void Splat(void* array, std::int64_t bytes, std::int64_t n) {
  ForBytes(bytes, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(array), n, *static_cast<T*>(array));
  });
}

void Spread(const void* from, void* out, std::int64_t bytes, std::int64_t rows, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(SpreadForTarget)(from, out, bytes, rows, n);
}

void Clear(void* to, std::int64_t stride, std::int64_t bytes, std::int64_t n) {
  if (stride == 1) {
    std::memset(to, 0, static_cast<size_t>(n * bytes));
    return;
  }
  ForBytes(bytes, [&](auto zero) {
    for (std::int64_t i = 0; i < n; ++i) static_cast<decltype(zero)*>(to)[i * stride] = zero;
  });
}

void LoadRows(const char* memory, char* block, const BlockRows& rows) {
  const std::int64_t row_bytes = rows.columns * rows.bytes;
  if (rows.stride == 1) return CopyRows(memory, rows.row_stride, block, row_bytes, rows);
  for (std::int64_t i = 0; i < rows.rows; ++i, memory += rows.row_stride, block += row_bytes) {
    CopyStrided(memory, rows.stride, block, 1, rows);
  }
}

void StoreRows(const char* block, char* memory, const BlockRows& rows) {
  const std::int64_t row_bytes = rows.columns * rows.bytes;
  if (rows.stride == 1) return CopyRows(block, row_bytes, memory, rows.row_stride, rows);
  for (std::int64_t i = 0; i < rows.rows; ++i, block += row_bytes, memory += rows.row_stride) {
    CopyStrided(block, 1, memory, rows.stride, rows);
  }
}

}  // namespace stepnet
#endif  // HWY_ONCE
