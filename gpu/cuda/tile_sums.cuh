// TileSums: how the blocks of FewRowsProduct add up what their warps have summed, and write it: in the order of warps,
// then in that of blocks.
#pragma once

#include <cooperative_groups.h>

#include <utility>

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
        first_column_(static_cast<int>(blockIdx.y) * kColumns),
        part_(PartOf(static_cast<int>(gridDim.x))),
        first_vector_(static_cast<int>(blockIdx.x) * part_ + static_cast<int>(threadIdx.x)) {}

  // Fetches what sums are added to, which arrives while the block multiplies.
  __device__ void Begin() {
    if (!of_.adds && of_.bias == nullptr) return;
    ForMine([&](int i, int vector) { before_[i] = of_.adds ? *Out(vector) : *Bias(vector); });
  }

  // Where a warp puts its sums [kRows, kColumns], before Add.
  __device__ float* Of(int warp) const { return shared_ + warp * kSize; }

  // All threads of the block call it.
  __device__ void Add() const {
    __syncthreads();
    if (gridDim.x > 1) {
      AddBlocks();
    } else {
      ForMine([&](int i, int vector) { Write(i, vector, SumOfWarps(vector)); });
    }
  }

 private:
  static constexpr int kVectors = kRows * kColumns / kVector, kVectorsOfRow = kColumns / kVector;
  static constexpr int kVectorsOfThread = (kVectors + kThreads - 1) / kThreads;

  // A division that takes a few cycles.
  __device__ static int PartOf(int blocks) {
    int part = kVectors;
    for (; blocks > 1; blocks /= 2) part /= 2;
    return part;
  }
  __device__ static int At(int vector) { return vector / kVectorsOfRow * kPitch + vector % kVectorsOfRow * kVector; }
  __device__ int Row(int vector) const { return first_row_ + vector / kVectorsOfRow; }
  __device__ int Column(int vector) const { return first_column_ + vector % kVectorsOfRow * kVector; }
  __device__ bool Exists(int vector) const { return Row(vector) < of_.rows && Column(vector) < of_.columns; }
  __device__ float4* Out(int vector) const {
    return reinterpret_cast<float4*>(of_.out + std::int64_t{Row(vector)} * of_.columns + Column(vector));
  }
  __device__ const float4* Bias(int vector) const { return reinterpret_cast<const float4*>(of_.bias + Column(vector)); }
  // Calls fn(i, vector) for those that the thread writes: each block of those that share a tile has a part.
  template <typename Fn>
  __device__ void ForMine(const Fn& fn) const {
#pragma unroll
    for (int i = 0; i < kVectorsOfThread; ++i) {
      const int vector = first_vector_ + i * kThreads;
      if (vector < static_cast<int>(blockIdx.x + 1) * part_ && Exists(vector)) fn(i, vector);
    }
  }

  __device__ float4 SumOfWarps(int vector) const {
    const int at = At(vector);
    float4 sum = *reinterpret_cast<const float4*>(shared_ + at);
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum = Plus(sum, *reinterpret_cast<const float4*>(Of(w) + at));
    return sum;
  }

  __device__ float4 SumOfBlocks(int vector) const {
    const auto cluster = cooperative_groups::this_cluster();
    float4 parts[kMaxBlocksOfTile];
#pragma unroll
    for (int b = 0; b < kMaxBlocksOfTile; ++b) {
      if (b < static_cast<int>(gridDim.x)) {
        parts[b] = *reinterpret_cast<const float4*>(cluster.map_shared_rank(shared_, b) + At(vector));
      }
    }
    float4 sum = parts[0];
#pragma unroll
    for (int b = 1; b < kMaxBlocksOfTile; ++b) {
      if (b < static_cast<int>(gridDim.x)) sum = Plus(sum, parts[b]);
    }
    return sum;
  }

  __device__ void AddBlocks() const {
#if __CUDA_ARCH__ >= 900
    // The block's sums replace those of its first warp.
    for (int v = static_cast<int>(threadIdx.x); v < kVectors; v += kThreads) {
      *reinterpret_cast<float4*>(shared_ + At(v)) = SumOfWarps(v);
    }
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    float4 sums[kVectorsOfThread];
    ForMine([&](int i, int vector) { sums[i] = SumOfBlocks(vector); });
    auto has_read = cluster.barrier_arrive();
    ForMine([&](int i, int vector) { Write(i, vector, sums[i]); });
    cluster.barrier_wait(std::move(has_read));  // others read this block's memory
#endif
  }

  __device__ void Write(int i, int vector, float4 sum) const {
    if (of_.adds && of_.bias != nullptr) sum = Plus(sum, *Bias(vector));
    *Out(vector) = of_.adds || of_.bias != nullptr ? Plus(before_[i], sum) : sum;
  }

  const Factors of_;
  float* const shared_;
  const int first_row_, first_column_;
  const int part_, first_vector_;  // of the vectors of the tile
  float4 before_[kVectorsOfThread];
};

}  // namespace stepnet::few_rows
