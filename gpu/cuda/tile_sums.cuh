// TileSums: how the blocks of FewRowsProduct add up what their warps have summed, and write it: in the order of warps,
// then in that of blocks.
#pragma once

#include <cooperative_groups.h>

#include "stepnet/gpu/cuda/few_rows_kernels.h"

namespace stepnet::few_rows {

__device__ inline float4 Plus(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// kPitch: floats from one row of a warp's sums to the next one.
template <int kRows, int kColumns, int kPitch>
class TileSums {
 public:
  static constexpr int kSize = kRows * kPitch;  // floats of a warp's sums
  static constexpr std::int64_t kBytes = std::int64_t{sizeof(float)} * kWarps * kSize;

  __device__ TileSums(const Factors& of, float* shared)
      : of_(of),
        shared_(shared),
        first_row_(static_cast<int>(blockIdx.z) * kRows),
        first_column_(static_cast<int>(blockIdx.y) * kColumns) {}

  // Where a warp puts its sums [kRows, kColumns], before Add.
  __device__ float* Of(int warp) const { return shared_ + warp * kSize; }

  // By all threads of the block.
  __device__ void Add() const {
    __syncthreads();
    AddWarps();
    if (gridDim.x > 1) AddBlocks();
  }

 private:
  static constexpr int kVectors = kRows * kColumns / kVector, kVectorsOfRow = kColumns / kVector;

  __device__ static int At(int vector) { return vector / kVectorsOfRow * kPitch + vector % kVectorsOfRow * kVector; }

  // Where other blocks have a part, in place of the sums of the first warp.
  __device__ void AddWarps() const {
    for (int v = static_cast<int>(threadIdx.x); v < kVectors; v += kThreads) {
      const int at = At(v);
      float4 sum = *reinterpret_cast<const float4*>(shared_ + at);
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum = Plus(sum, *reinterpret_cast<const float4*>(Of(w) + at));
      if (gridDim.x == 1) {
        Write(v, sum);
      } else {
        *reinterpret_cast<float4*>(shared_ + at) = sum;
      }
    }
  }

  // Each block of the cluster adds up and writes its part of the tile.
  __device__ void AddBlocks() const {
#if __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    const int blocks = static_cast<int>(gridDim.x), part = kVectors / blocks;
    const int begin = static_cast<int>(blockIdx.x) * part;
    for (int v = begin + static_cast<int>(threadIdx.x); v < begin + part; v += kThreads) {
      float4 parts[kMaxBlocksOfTile];
#pragma unroll
      for (int b = 0; b < kMaxBlocksOfTile; ++b) {
        if (b < blocks) parts[b] = *reinterpret_cast<const float4*>(cluster.map_shared_rank(shared_, b) + At(v));
      }
      float4 sum = parts[0];
#pragma unroll
      for (int b = 1; b < kMaxBlocksOfTile; ++b) {
        if (b < blocks) sum = Plus(sum, parts[b]);
      }
      Write(v, sum);
    }
    cluster.sync();  // others read this block's memory
#endif
  }

  __device__ void Write(int vector, float4 sum) const {
    const int row = first_row_ + vector / kVectorsOfRow, column = first_column_ + vector % kVectorsOfRow * kVector;
    if (row >= of_.rows || column >= of_.columns) return;
    auto* const to = reinterpret_cast<float4*>(of_.out + std::int64_t{row} * of_.columns + column);
    if (of_.bias != nullptr) sum = Plus(sum, *reinterpret_cast<const float4*>(of_.bias + column));
    *to = of_.adds ? Plus(*to, sum) : sum;
  }

  const Factors of_;
  float* const shared_;
  const int first_row_, first_column_;
};

}  // namespace stepnet::few_rows
