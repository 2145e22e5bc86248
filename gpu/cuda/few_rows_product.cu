#include <cooperative_groups.h>

#include <algorithm>

#include "stepnet/core/strings.h"
#include "stepnet/gpu/cuda/cuda_call.h"
#include "stepnet/gpu/cuda/few_rows_product.h"
#include "stepnet/gpu/device_code.cuh"

namespace stepnet {
namespace {

constexpr int kWarps = 8;
constexpr int kLanes = 32;
constexpr int kThreads = kWarps * kLanes;
constexpr int kChunk = 16;           // elements of the depth
constexpr int kStages = 4;           // chunks of a warp that are in shared memory or on the way there
constexpr int kMaxBlocksOfTile = 8;  // larger clusters are not portable
constexpr int kVector = 4;           // floats that one copy takes

// Shared memory of a block, in floats. Rows of the right factor begin on other banks, so that lanes that read one each
// do not wait for each other.
template <int kRows, int kColumnsOfLane, bool kTransposed>
struct Layout {
  static constexpr int kColumns = kLanes * kColumnsOfLane;
  static constexpr int kPitch = kChunk + kVector;
  static constexpr int kLeft = kRows * kChunk;
  static constexpr int kStage = kLeft + (kTransposed ? kColumns * kPitch : 0);
  static constexpr int kSums = kRows * kColumns;
  static constexpr std::int64_t kBytes = std::int64_t{sizeof(float)} * kWarps * std::max(kStages * kStage, kSums);
};

struct Factors {
  const float* left;
  const float* right;
  const float* bias;
  float* out;
  int rows, columns, depth;
  bool adds;
};

// 16 bytes, or zeros in their place.
__device__ void CopyLater(float* to, const float* from, bool exists) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(from), "r"(exists ? 16 : 0));
}
__device__ void EndOfCopies() { asm volatile("cp.async.commit_group;\n"); }
template <int kOthers>
__device__ void WaitForAllBut() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kOthers));
}

__device__ float4 Plus(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <int kRows, int kColumnsOfLane, bool kTransposed>
class Block {
 public:
  using In = Layout<kRows, kColumnsOfLane, kTransposed>;

  __device__ Block(const Factors& of, float* shared)
      : of_(of),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        first_row_(static_cast<int>(blockIdx.z) * kRows),
        first_column_(static_cast<int>(blockIdx.y) * In::kColumns),
        step_(static_cast<int>(gridDim.x) * kWarps),
        num_chunks_((of.depth + kChunk - 1) / kChunk) {}

  __device__ void Run() {
    SumChunks();
    WaitForAllBut<0>();
    __syncthreads();
    AddWarps();
    if (gridDim.x > 1) AddBlocks();
  }

 private:
  __device__ float* StageAt(int stage) const { return shared_ + (warp_ * kStages + stage) * In::kStage; }

  // Begins to copy a chunk; one that does not exist is none.
  __device__ void Load(int chunk, int stage) const {
    float* const left = StageAt(stage);
    constexpr int kVectors = kChunk / kVector;
    const int begin = chunk * kChunk;
    if (chunk < num_chunks_) {
#pragma unroll
      for (int i = lane_; i < kRows * kVectors; i += kLanes) {
        const int row = i / kVectors, k = i % kVectors * kVector;
        const bool exists = first_row_ + row < of_.rows && begin + k < of_.depth;
        const std::int64_t at = std::int64_t{first_row_ + row} * of_.depth + begin + k;
        CopyLater(left + row * kChunk + k, of_.left + (exists ? at : 0), exists);
      }
      if constexpr (kTransposed) {
        float* const right = left + In::kLeft;
#pragma unroll
        for (int i = lane_; i < In::kColumns * kVectors; i += kLanes) {
          const int column = i / kVectors, k = i % kVectors * kVector;
          const bool exists = first_column_ + column < of_.columns && begin + k < of_.depth;
          const std::int64_t at = std::int64_t{first_column_ + column} * of_.depth + begin + k;
          CopyLater(right + column * In::kPitch + k, of_.right + (exists ? at : 0), exists);
        }
      }
    }
    EndOfCopies();
  }

  // What lies by rows goes straight to the lanes that have its columns.
  __device__ void Fetch(int chunk, float (&values)[kChunk][kColumnsOfLane]) const {
    const int column = first_column_ + lane_ * kColumnsOfLane;
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
      const int at = chunk * kChunk + k;
      const bool exists = at < of_.depth && column < of_.columns;
      const float* const from = of_.right + (exists ? std::int64_t{at} * of_.columns + column : 0);
      if constexpr (kColumnsOfLane == 2) {
        const float2 pair = exists ? __ldg(reinterpret_cast<const float2*>(from)) : float2{};
        values[k][0] = pair.x;
        values[k][1] = pair.y;
      } else {
        values[k][0] = exists ? __ldg(from) : 0.0f;
      }
    }
  }

  // Four elements of the depth, of the columns of the lane.
  __device__ float4 RightAt(int stage, const float (&fetched)[kChunk][kColumnsOfLane], int k, int j) const {
    if constexpr (kTransposed) {
      const float* const right = StageAt(stage) + In::kLeft;
      return *reinterpret_cast<const float4*>(right + (lane_ + kLanes * j) * In::kPitch + k);
    } else {
      return {fetched[k][j], fetched[k + 1][j], fetched[k + 2][j], fetched[k + 3][j]};
    }
  }

  __device__ void Multiply(int stage, const float (&fetched)[kChunk][kColumnsOfLane]) {
    const float* const left = StageAt(stage);
#pragma unroll
    for (int k = 0; k < kChunk; k += kVector) {
      float4 right[kColumnsOfLane];
#pragma unroll
      for (int j = 0; j < kColumnsOfLane; ++j) right[j] = RightAt(stage, fetched, k, j);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 a = *reinterpret_cast<const float4*>(left + i * kChunk + k);
#pragma unroll
        for (int j = 0; j < kColumnsOfLane; ++j) {
          float& sum = sums_[i][j];
          sum = __fmaf_rn(a.x, right[j].x, sum);
          sum = __fmaf_rn(a.y, right[j].y, sum);
          sum = __fmaf_rn(a.z, right[j].z, sum);
          sum = __fmaf_rn(a.w, right[j].w, sum);
        }
      }
    }
  }

  __device__ void SumChunks() {
    int chunk = static_cast<int>(blockIdx.x) * kWarps + warp_, next = chunk, stage = 0;
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s, next += step_) Load(next, s);
    // Two sets of fetched values take turns: one is used while the other is on the way.
    float fetched[2][kChunk][kColumnsOfLane];
    if constexpr (!kTransposed) Fetch(chunk, fetched[0]);
    const auto turn = [&](int now) {
      __syncwarp();
      Load(next, stage == 0 ? kStages - 1 : stage - 1);
      if constexpr (!kTransposed) Fetch(chunk + step_, fetched[1 - now]);
      WaitForAllBut<kStages - 1>();
      __syncwarp();
      Multiply(stage, fetched[now]);
      stage = stage == kStages - 1 ? 0 : stage + 1;
      chunk += step_;
      next += step_;
    };
    while (chunk < num_chunks_) {
      turn(0);
      if (chunk >= num_chunks_) break;
      turn(1);
    }
  }

  // In the memory of the chunks, which nobody needs any more. Where other blocks have a part, in that of the first
  // warp.
  __device__ void AddWarps() {
    float* const mine = shared_ + warp_ * In::kSums;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnsOfLane; ++j) {
        mine[i * In::kColumns + (kTransposed ? lane_ + kLanes * j : lane_ * kColumnsOfLane + j)] = sums_[i][j];
      }
    }
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x) * kVector; e < In::kSums; e += kThreads * kVector) {
      float4 sum = *reinterpret_cast<const float4*>(shared_ + e);
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum = Plus(sum, *reinterpret_cast<const float4*>(shared_ + w * In::kSums + e));
      if (gridDim.x == 1) {
        Write(e, sum);
      } else {
        *reinterpret_cast<float4*>(shared_ + e) = sum;
      }
    }
  }

  // Each block of the cluster adds up and writes its part of the tile.
  __device__ void AddBlocks() const {
#if __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    const int blocks = static_cast<int>(gridDim.x), part = In::kSums / blocks;
    const int begin = static_cast<int>(blockIdx.x) * part;
    for (int e = begin + static_cast<int>(threadIdx.x) * kVector; e < begin + part; e += kThreads * kVector) {
      float4 parts[kMaxBlocksOfTile];
#pragma unroll
      for (int b = 0; b < kMaxBlocksOfTile; ++b) {
        if (b < blocks) parts[b] = *reinterpret_cast<const float4*>(cluster.map_shared_rank(shared_, b) + e);
      }
      float4 sum = parts[0];
#pragma unroll
      for (int b = 1; b < kMaxBlocksOfTile; ++b) {
        if (b < blocks) sum = Plus(sum, parts[b]);
      }
      Write(e, sum);
    }
    cluster.sync();  // others read this block's memory
#endif
  }

  __device__ void Write(int element, float4 sum) const {
    const int row = first_row_ + element / In::kColumns, column = first_column_ + element % In::kColumns;
    if (row >= of_.rows || column >= of_.columns) return;
    auto* const to = reinterpret_cast<float4*>(of_.out + std::int64_t{row} * of_.columns + column);
    if (of_.bias != nullptr) sum = Plus(sum, *reinterpret_cast<const float4*>(of_.bias + column));
    *to = of_.adds ? Plus(*to, sum) : sum;
  }

  const Factors of_;
  float* const shared_;
  const int lane_, warp_, first_row_, first_column_;
  const int step_;  // from one chunk of a warp to its next one
  const int num_chunks_;
  float sums_[kRows][kColumnsOfLane] = {};
};

template <int kRows, int kColumnsOfLane, bool kTransposed>
__global__ void __launch_bounds__(kThreads) Multiply(Factors of) {
  extern __shared__ float4 shared[];
  device::WaitForKernelsBefore();
  Block<kRows, kColumnsOfLane, kTransposed>(of, reinterpret_cast<float*>(shared)).Run();
}

struct TileKernel {
  void (*multiply)(Factors);
  int rows;
  int columns_of_lane;
  bool right_transposed;
  std::int64_t bytes;
};
template <int kRows, int kColumnsOfLane, bool kTransposed>
constexpr TileKernel kTileKernelOf = {Multiply<kRows, kColumnsOfLane, kTransposed>, kRows, kColumnsOfLane, kTransposed,
                                      Layout<kRows, kColumnsOfLane, kTransposed>::kBytes};
constexpr TileKernel kKernels[] = {kTileKernelOf<8, 1, true>, kTileKernelOf<16, 1, true>, kTileKernelOf<8, 1, false>,
                                   kTileKernelOf<8, 2, false>};

const TileKernel& KernelFor(int rows, int columns_of_lane, bool right_transposed) {
  return *std::ranges::find_if(kKernels, [&](const TileKernel& kernel) {
    return kernel.rows == rows && kernel.columns_of_lane == columns_of_lane &&
           kernel.right_transposed == right_transposed;
  });
}

std::int64_t Parts(std::int64_t size, std::int64_t of_part) { return (size + of_part - 1) / of_part; }

constexpr const FewRowsSizes& kSizes = kCudaProducts.few_rows;

double EstimateMicroseconds(const ProductSizes& sizes, const TileKernel& kernel, int blocks,
                            const ProductDevice& device) {
  const std::int64_t tiles = Parts(sizes.rows, kernel.rows) * Parts(sizes.columns, kLanes * kernel.columns_of_lane);
  const auto waves = static_cast<double>(Parts(tiles * blocks, device.num_processors));
  const auto chunks = static_cast<double>(Parts(Parts(sizes.depth, kChunk), blocks * kWarps));
  const double of_chunk = kSizes.chunk_time + kSizes.element_of_lane_time * kernel.rows * kernel.columns_of_lane;
  const double of_cluster = blocks > 1 ? kSizes.cluster_time + kSizes.block_of_cluster_time * blocks : 0.0;
  return waves * chunks * of_chunk + waves * kSizes.wave_time + of_cluster;
}

bool IsForCublas(const ProductSizes& sizes) {
  const std::int64_t min_rows = sizes.right_transposed ? kSizes.min_rows_of_transposed : kSizes.min_rows;
  const double max_products =
      sizes.right_transposed ? kSizes.max_multiplications_of_transposed : kSizes.max_multiplications;
  const double products =
      static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns) * static_cast<double>(sizes.depth);
  return sizes.rows < min_rows || sizes.rows > kSizes.max_rows || products > max_products;
}

}  // namespace

std::optional<FewRowsProduct> FewRowsProduct::Make(const ProductSizes& sizes, const ProductDevice& device) {
  if (IsForCublas(sizes) || sizes.depth == 0 || sizes.columns % kVector != 0 || sizes.depth % kVector != 0) return {};
  std::optional<FewRowsProduct> best;
  double least = 0;
  for (const TileKernel& kernel : kKernels) {
    if (kernel.right_transposed != sizes.right_transposed || kernel.bytes > device.max_shared_bytes) continue;
    const std::int64_t tiles = Parts(sizes.rows, kernel.rows) * Parts(sizes.columns, kLanes * kernel.columns_of_lane);
    for (int blocks = 1; blocks <= (device.has_clusters ? kMaxBlocksOfTile : 1); blocks *= 2) {
      // Clusters wait until all their blocks have a processor; blocks without a chunk only cost.
      const bool fits = tiles * blocks <= device.num_processors && (blocks - 1) * kWarps < Parts(sizes.depth, kChunk);
      if (blocks > 1 && !fits) break;
      const double microseconds = EstimateMicroseconds(sizes, kernel, blocks, device);
      if (best && microseconds >= least) continue;
      best = FewRowsProduct(sizes, {.rows = kernel.rows, .columns_of_lane = kernel.columns_of_lane, .blocks = blocks});
      least = microseconds;
    }
  }
  return best;
}

ProductDevice FewRowsProduct::DeviceOf(int device) {
  ProductDevice found;
  int shared_bytes = 0;
  cudaFuncAttributes code = {};
  static_cast<void>(cudaDeviceGetAttribute(&found.num_processors, cudaDevAttrMultiProcessorCount, device));
  static_cast<void>(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  // A newer GPU may run code that was made for one without clusters.
  if (cudaFuncGetAttributes(&code, kKernels[0].multiply) == cudaSuccess) found.has_clusters = code.ptxVersion >= 90;
  found.max_shared_bytes = shared_bytes;
  return found;
}

void FewRowsProduct::Prepare() const {
  const TileKernel& kernel = KernelFor(tile_.rows, tile_.columns_of_lane, sizes_.right_transposed);
  CheckCuda(cudaFuncSetAttribute(kernel.multiply, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kernel.bytes)),
            "the memory of a product of few rows");
}

void FewRowsProduct::Launch(const float* left, const float* right, const float* bias, float* out, bool adds,
                            const CudaQueue& queue) const {
  Factors factors{.left = left,
                  .right = right,
                  .bias = bias,
                  .out = out,
                  .rows = static_cast<int>(sizes_.rows),
                  .columns = static_cast<int>(sizes_.columns),
                  .depth = static_cast<int>(sizes_.depth),
                  .adds = adds};
  void* parameters[] = {&factors};
  const TileKernel& kernel = KernelFor(tile_.rows, tile_.columns_of_lane, sizes_.right_transposed);
  const dim3 blocks(static_cast<unsigned>(tile_.blocks),
                    static_cast<unsigned>(Parts(sizes_.columns, kLanes * kernel.columns_of_lane)),
                    static_cast<unsigned>(Parts(sizes_.rows, kernel.rows)));
  LaunchEarly(reinterpret_cast<const void*>(kernel.multiply),
              {.blocks = blocks, .threads = kThreads, .shared_bytes = kernel.bytes, .cluster = tile_.blocks},
              parameters, queue, "a product of few rows");
}

std::string FewRowsProduct::Text() const {
  return StrCat("tiles of ", tile_.rows, " x ", kLanes * tile_.columns_of_lane, ", ", tile_.blocks,
                tile_.blocks == 1 ? " block each" : " blocks each");
}

}  // namespace stepnet
