// The kernels of FewRowsProduct: few_rows_exact.cu multiplies in float, few_rows_tf32.cu on tensor cores.
#pragma once

#include <cstdint>
#include <span>

namespace stepnet::few_rows {

inline constexpr int kVector = 4;  // floats that one load takes
inline constexpr int kLanes = 32;  // of a warp
inline constexpr int kWarps = 8;   // of a block
inline constexpr int kThreads = kWarps * kLanes;
inline constexpr int kChunk = 16;           // elements of the depth, which a warp multiplies at once
inline constexpr int kMaxBlocksOfTile = 8;  // larger clusters are not portable

// What a kernel is called with. out [rows, columns] = left [rows, depth] times right, plus bias [columns] (null: none),
// or is added to.
struct Factors {
  const float* left;
  const float* right;
  const float* bias;
  float* out;
  int rows, columns, depth;
  bool adds;
};

// Its blocks have kWarps warps. Grid: blocks that share a tile, tiles of columns, tiles of rows.
struct TileKernel {
  void (*multiply)(Factors);
  int rows;  // of a tile
  int columns;
  bool right_transposed;
  std::int64_t bytes;  // of shared memory
};

std::span<const TileKernel> ExactKernels();
std::span<const TileKernel> Tf32Kernels();

}  // namespace stepnet::few_rows
