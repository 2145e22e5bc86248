// What programs of regions copy: values of rows and runs into arrays, and elements between memory and blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stepnet {

// Fills [1, n) of an array with its first element.
void Splat(void* array, std::int64_t bytes, std::int64_t n);
// out: n copies of each of `rows` elements.
void Spread(const void* from, void* out, std::int64_t bytes, std::int64_t rows, std::int64_t n);
// to[i * stride] = 0 for i < n, of so many bytes each.
void Clear(void* to, std::int64_t stride, std::int64_t bytes, std::int64_t n);

// Rows of a block, whose elements are one after the other, and the memory that they come from or go to.
struct BlockRows {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t bytes = 1;       // of an element
  std::int64_t row_stride = 0;  // in memory, from row to row, in bytes
  std::int64_t stride = 1;      // in memory, from column to column, in elements
};

// What LoadBlock and StoreBlock do, for any rows.
void LoadRows(const char* memory, char* block, const BlockRows& rows);
void StoreRows(const char* block, char* memory, const BlockRows& rows);

// One row or two: to find out how to copy them would take as long as the copy.
inline bool CopyFewRows(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
                        const BlockRows& rows) {
  if (rows.rows > 2 || rows.stride != 1) return false;
  const auto bytes = static_cast<size_t>(rows.columns * rows.bytes);
  std::memcpy(to, from, bytes);
  if (rows.rows == 2) std::memcpy(to + to_stride, from + from_stride, bytes);
  return true;
}

// REQUIRES: at least one row; no byte is both read and written.
inline void LoadBlock(const char* memory, char* block, const BlockRows& rows) {
  if (!CopyFewRows(memory, rows.row_stride, block, rows.columns * rows.bytes, rows)) LoadRows(memory, block, rows);
}
inline void StoreBlock(const char* block, char* memory, const BlockRows& rows) {
  if (!CopyFewRows(block, rows.columns * rows.bytes, memory, rows.row_stride, rows)) StoreRows(block, memory, rows);
}

}  // namespace stepnet
