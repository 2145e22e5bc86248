#include <algorithm>

#include "stepnet/gpu/cuda/tile_sums.cuh"
#include "stepnet/gpu/device_code.cuh"

namespace stepnet::few_rows {
namespace {

constexpr int kStages = 4;  // chunks of a warp that are in shared memory or on the way there

// Shared memory of a block, in floats. Rows of the right factor begin on other banks, so that lanes that read one each
// do not wait for each other.
template <int kRows, int kColumnsOfLane, bool kTransposed>
struct Layout {
  static constexpr int kColumns = kLanes * kColumnsOfLane;
  static constexpr int kPitch = kChunk + kVector;
  static constexpr int kLeft = kRows * kChunk;
  static constexpr int kStage = kLeft + (kTransposed ? kColumns * kPitch : 0);
  using Sums = TileSums<kRows, kColumns, kColumns>;
  static constexpr std::int64_t kBytes =
      std::max(std::int64_t{sizeof(float)} * kWarps * kStages * kStage, Sums::kBytes);
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
    typename In::Sums sums(of_, shared_);  // in the memory of the chunks, when nobody needs these any more
    sums.Begin();
    SumChunks();
    WaitForAllBut<0>();
    __syncthreads();
    Keep(sums.Of(warp_));
    sums.Add();
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

  __device__ void Keep(float* mine) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnsOfLane; ++j) {
        mine[i * In::kColumns + (kTransposed ? lane_ + kLanes * j : lane_ * kColumnsOfLane + j)] = sums_[i][j];
      }
    }
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
  device::LetNextKernelCome();
  device::WaitForKernelsBefore();
  Block<kRows, kColumnsOfLane, kTransposed>(of, reinterpret_cast<float*>(shared)).Run();
}

template <int kRows, int kColumnsOfLane, bool kTransposed>
constexpr TileKernel kKernel = {Multiply<kRows, kColumnsOfLane, kTransposed>, kRows, kLanes* kColumnsOfLane,
                                kTransposed, Layout<kRows, kColumnsOfLane, kTransposed>::kBytes};
constexpr TileKernel kKernels[] = {kKernel<8, 1, true>, kKernel<16, 1, true>, kKernel<8, 1, false>,
                                   kKernel<8, 2, false>};

}  // namespace

std::span<const TileKernel> ExactKernels() { return kKernels; }

}  // namespace stepnet::few_rows
