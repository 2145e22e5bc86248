// What programs of regions copy: values of rows and runs into arrays, and elements between memory and blocks.
#pragma once

#include <cstdint>

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
  std::int64_t bytes = 1;     // of an element
  std::int64_t row_step = 0;  // in memory, from row to row, in bytes
  std::int64_t stride = 1;    // in memory, from column to column, in elements
};
// REQUIRES: no byte is both read and written.
void LoadBlock(const void* memory, void* block, const BlockRows& rows);
void StoreBlock(const void* block, void* memory, const BlockRows& rows);

}  // namespace stepnet
