// The figures of a GPU that were found by measuring one: kCudaTarget, by which plans are made, kCudaRegions, by which
// regions become kernels, and kCudaProducts, by which products do. They are the same on every GPU, since the last ones
// decide how a product rounds: kernels differ in the order in which they add terms.
//
// What is not here stands with its kernel: sizes of blocks of threads, by which the kernel is written, and in how many
// parts a kernel adds.
#pragma once

#include <cstdint>
#include <limits>

#include "stepnet/core/target.h"

namespace stepnet {

// What is left out is what plans for threads alone ask.
//
// Estimates are from an H200 (docs/performance.md): products of float, memory, and the launch of a kernel. Chunks:
// with fewer rows stages overlap more, and products are slower; four layers of lstm.cell take 0.93 of the time with 512
// rows that they take with 1024 at (B, H) = (64, 512), 0.87 at (32, 256), and 1.01 and 1.07 of that with 256. More
// queues gain nothing: each kernel has many blocks. Whatever can takes many steps at once, because a launch takes
// longer than the work of a step: a million operations take no longer (chosen). To copy weights takes as long as a few
// launches of steps. A kernel takes 32,764 bytes of parameters, which bounds regions (chosen).
inline constexpr Target kCudaTarget = {.device = DeviceKind::kCuda,
                                       .flops_per_microsecond = 20e6,
                                       .bytes_per_microsecond = 2e6,
                                       .microseconds_of_call = 4,
                                       .chunk_rows = 512,
                                       .max_chunk_steps = 64,
                                       .block_bytes = std::int64_t{4} << 30,
                                       .max_chunks_of_block = 1024,
                                       .takes_all_over_time = true,
                                       .max_bytes_to_merge = 32 << 20,
                                       .max_queues = 8,
                                       .max_repeated_operations = 1 << 20,
                                       .max_region_operators = 48,
                                       .max_region_operands = 32,
                                       .max_group_elements = 4096};

// Which kernel a region becomes (gpu/region_source.h); the bits are the same. Chosen.
struct CudaRegionSizes {
  // Rows that are at least this long, and fewer than that, have a block of threads each; others have a warp, which
  // would leave most of the GPU idle.
  std::int64_t block_row = 256;
  std::int64_t max_block_rows = 2048;
  // Blocks of so few rows have a multiprocessor each, and twice as many threads: what a row takes is what a step takes.
  std::int64_t few_block_rows = 128;
  // Sums of at least so many terms are made by blocks, which compute terms ahead; others by a thread each, which waits
  // for memory at every few terms.
  std::int64_t min_block_terms = 64;
};
inline constexpr CudaRegionSizes kCudaRegions = {};

// Streams of a recording: each has scratch memory of its own. Chosen.
inline constexpr int kMaxCudaLanes = 4;

// Which products of few rows kernels of our own compute (gpu/cuda/few_rows_product.h), and in which tiles.
struct FewRowsSizes {
  // Elsewhere cuBLASLt is faster, by the timings below or in the steps of cells (scripts/bench_gpu): beyond so many
  // rows, below so few, and for so many multiplications. What lies by rows it reads better.
  std::int64_t max_rows = 0;
  std::int64_t min_rows = 0;
  std::int64_t min_rows_of_transposed = 0;
  double max_multiplications = 0;
  double max_multiplications_of_transposed = 0;
  std::int64_t max_depth = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_depth_of_transposed = std::numeric_limits<std::int64_t>::max();

  // Microseconds, about, by which a tile is chosen.
  double wave_time = 0;             // of blocks, one on each processor
  double chunk_time = 0;            // that each warp of a block multiplies
  double chunk_wait = 0;            // for memory, in which other blocks of a processor compute
  double element_of_lane_time = 0;  // of a chunk
  double vector_of_lane_time = 0;   // of a row or column of a chunk, which is read
  double cluster_time = 0;          // where several blocks share a tile
  double block_of_cluster_time = 0;
};

// Which products are computed directly (gpu/cuda/direct_product.h). By timing them and cuBLASLt in a chain of steps on
// an H100 (docs/performance.md).
struct DirectProductSizes {
  std::int64_t max_rows = 4;
  double max_multiplications_of_rows = 1 << 25;
  // Beyond so much depth cuBLASLt reads more of a column at once.
  std::int64_t max_depth_of_warp = 2048;
  // For less most threads of a block would have nothing to do.
  std::int64_t min_depth_of_block = 64;
  // A warp has four columns where that leaves each multiprocessor a block: more of the right factor is on its way then.
  // Likewise a block has more where there are enough for all multiprocessors.
  std::int64_t min_columns_for_four = 4096;
  std::int64_t min_blocks = 128;
  // Small: so that no thread adds more than a few terms.
  double max_multiplications_of_elements = 1 << 18;
  std::int64_t max_depth_of_element = 512;
};

// Which kernel computes a product.
struct CudaProductSizes {
  // By timing products of 1 to 128 rows, depths and columns of 64 to 8,192 on an H200. Very few rows of a factor that
  // lies by columns are nothing but reading.
  FewRowsSizes exact_few_rows = {.max_rows = 64,
                                 .min_rows = 2,
                                 .min_rows_of_transposed = 5,
                                 .max_multiplications = 1 << 23,
                                 .max_multiplications_of_transposed = 1 << 25,
                                 .wave_time = 0.3,
                                 .chunk_time = 0.3,
                                 .element_of_lane_time = 0.03,
                                 .cluster_time = 0.4,
                                 .block_of_cluster_time = 0.1};
  // By timing products of 8 to 128 rows, depths and columns of 256 to 4,096, in chains of kernels there. Tensor cores
  // take eight rows at once.
  FewRowsSizes tf32_few_rows = {.max_rows = 128,
                                .min_rows = 5,
                                .min_rows_of_transposed = 5,
                                .max_multiplications = 1 << 26,
                                .max_multiplications_of_transposed = 1 << 26,
                                .max_depth = 2048,
                                .max_depth_of_transposed = 1024,
                                .chunk_wait = 0.38,
                                .element_of_lane_time = 0.0004,
                                .vector_of_lane_time = 0.0034,
                                .cluster_time = 1.46};
  // Elements of a tile up to which a processor has room for two blocks.
  std::int64_t max_tile_beside_others = 1024;
  // Multiplications up to which other products are computed directly, and so exactly, where TF32 would do. Chosen.
  std::int64_t max_exact_multiplications = std::int64_t{32} * 256 * 1024;
  DirectProductSizes direct;
};
inline constexpr CudaProductSizes kCudaProducts = {};

}  // namespace stepnet
