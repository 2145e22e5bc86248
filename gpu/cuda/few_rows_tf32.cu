// Products of few rows on tensor cores: factors are rounded to TF32 (10 bits of mantissa, to nearest), products and
// sums are of float. Both factors go straight from memory to the registers in which tensor cores want them: each warp
// has elements of the depth of its own, so that within a block nothing is read twice.
#include "stepnet/gpu/cuda/tile_sums.cuh"
#include "stepnet/gpu/device_code.cuh"

namespace stepnet::few_rows {
namespace {

// mma.m16n8k8 (PTX ISA, "Warp-level matrix instructions"): the result's 16 rows are columns of ours, its 8 columns rows
// of ours. Lane 4 * group + member holds elements of rows `group` and `group + 8`, and of the depth `member` and
// `member + 4`. Which of our elements these are is free as long as both factors agree: a lane's are those that one load
// brings.
constexpr int kColumnsOfMma = 16, kRowsOfMma = 8, kMembers = 4;
constexpr int kMmasOfChunk = 2;

__device__ unsigned RoundToTf32(float value) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return rounded;
}

__device__ void MultiplyAndAdd(const unsigned (&a)[4], unsigned b0, unsigned b1, float (&sum)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The two of a lane's four elements that an mma takes.
__device__ float2 Half(const float4& four, int half) {
  return half == 0 ? float2{four.x, four.y} : float2{four.z, four.w};
}

// A tile of kRowTiles * 8 rows and kColumnTiles * 16 columns.
template <int kRowTiles, int kColumnTiles, bool kTransposed>
class Block {
 public:
  static constexpr int kRows = kRowsOfMma * kRowTiles, kColumns = kColumnsOfMma * kColumnTiles;
  // Rows of sums begin on other banks.
  using Sums = TileSums<kRows, kColumns, kColumns + kVector>;
  // What lies by rows, a lane reads four columns of.
  static_assert(kTransposed || kColumnTiles == 2);

  __device__ Block(const Factors& of, float* shared)
      : of_(of),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        group_(static_cast<int>(threadIdx.x) % kLanes / kMembers),
        member_(static_cast<int>(threadIdx.x) % kMembers),
        first_row_(static_cast<int>(blockIdx.z) * kRows),
        first_column_(static_cast<int>(blockIdx.y) * kColumns) {}

  __device__ void Run() {
    Sums sums(of_, shared_);
    sums.Begin();
    SumChunks();
    Keep(sums.Of(warp_));
    sums.Add();
  }

 private:
  // A lane's elements of a chunk.
  struct Fetched {
    float4 right[2 * kColumnTiles];
    float4 left[kRowTiles];
  };

  __device__ static float4 At(const float* factor, std::int64_t at, bool exists) {
    return exists ? __ldg(reinterpret_cast<const float4*>(factor + at)) : float4{};
  }

  __device__ void Fetch(int chunk, Fetched& to) const {
    const int k = chunk * kChunk + member_ * kVector;
    const bool exists = k < of_.depth;
#pragma unroll
    for (int i = 0; i < 2 * kColumnTiles; ++i) {
      if constexpr (kTransposed) {
        const int column = first_column_ + kRowsOfMma * i + group_;
        to.right[i] = At(of_.right, std::int64_t{column} * of_.depth + k, exists && column < of_.columns);
      } else {
        const int column = first_column_ + kVector * group_;
        to.right[i] = At(of_.right, std::int64_t{k + i} * of_.columns + column, exists && column < of_.columns);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = first_row_ + kRowsOfMma * i + group_;
      to.left[i] = At(of_.left, std::int64_t{row} * of_.depth + k, exists && row < of_.rows);
    }
  }

  // A lane's elements of columns `tile`: rows `group` and `group + 8` of the mma, each at two places of the depth.
  __device__ static void RightOf(const Fetched& from, int half, int tile, unsigned (&to)[4]) {
    float2 first, second;
    if constexpr (kTransposed) {
      const float2 upper = Half(from.right[2 * tile], half), lower = Half(from.right[2 * tile + 1], half);
      first = {upper.x, lower.x};
      second = {upper.y, lower.y};
    } else {
      first = Half(from.right[2 * half], tile);
      second = Half(from.right[2 * half + 1], tile);
    }
    to[0] = RoundToTf32(first.x);
    to[1] = RoundToTf32(first.y);
    to[2] = RoundToTf32(second.x);
    to[3] = RoundToTf32(second.y);
  }

  __device__ void Multiply(const Fetched& from) {
#pragma unroll
    for (int half = 0; half < kMmasOfChunk; ++half) {
      unsigned right[kColumnTiles][4];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) RightOf(from, half, j, right[j]);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const float2 left = Half(from.left[i], half);
        const unsigned left0 = RoundToTf32(left.x), left1 = RoundToTf32(left.y);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) MultiplyAndAdd(right[j], left0, left1, sums_[i][j]);
      }
    }
  }

  // Two sets of elements take turns: one is multiplied while the other is on the way.
  __device__ void SumChunks() {
    const int num_chunks = (of_.depth + kChunk - 1) / kChunk, step = static_cast<int>(gridDim.x) * kWarps;
    int chunk = static_cast<int>(blockIdx.x) * kWarps + warp_;
    Fetched fetched[2];
    Fetch(chunk, fetched[0]);
    while (chunk < num_chunks) {
      Fetch(chunk + step, fetched[1]);
      Multiply(fetched[0]);
      chunk += step;
      if (chunk >= num_chunks) break;
      Fetch(chunk + step, fetched[0]);
      Multiply(fetched[1]);
      chunk += step;
    }
  }

  // A lane has sums of two rows of ours, and of two columns for each mma.
  __device__ void Keep(float* mine) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* const row = mine + (kRowsOfMma * i + 2 * member_ + r) * (kColumns + kVector);
        if constexpr (kTransposed) {
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            row[kColumnsOfMma * j + group_] = sums_[i][j][r];
            row[kColumnsOfMma * j + kRowsOfMma + group_] = sums_[i][j][2 + r];
          }
        } else {
          *reinterpret_cast<float4*>(row + kVector * group_) = {sums_[i][0][r], sums_[i][0][2 + r], sums_[i][1][r],
                                                                sums_[i][1][2 + r]};
        }
      }
    }
  }

  const Factors of_;
  float* const shared_;
  const int warp_, group_, member_, first_row_, first_column_;
  float sums_[kRowTiles][kColumnTiles][4] = {};
};

template <int kRowTiles, int kColumnTiles, bool kTransposed>
__global__ void __launch_bounds__(kThreads) Multiply(Factors of) {
  extern __shared__ float4 shared[];
  device::LetNextKernelCome();
  device::WaitForKernelsBefore();
  Block<kRowTiles, kColumnTiles, kTransposed>(of, reinterpret_cast<float*>(shared)).Run();
}

template <int kRowTiles, int kColumnTiles, bool kTransposed, typename Of = Block<kRowTiles, kColumnTiles, kTransposed>>
constexpr TileKernel kKernel = {Multiply<kRowTiles, kColumnTiles, kTransposed>, Of::kRows, Of::kColumns, kTransposed,
                                Of::Sums::kBytes};
constexpr TileKernel kKernels[] = {kKernel<1, 1, true>,  kKernel<2, 1, true>,  kKernel<4, 1, true>,
                                   kKernel<4, 2, true>,  kKernel<8, 2, true>,  kKernel<1, 2, false>,
                                   kKernel<2, 2, false>, kKernel<4, 2, false>, kKernel<8, 2, false>};

}  // namespace

std::span<const TileKernel> Tf32Kernels() { return kKernels; }

}  // namespace stepnet::few_rows
