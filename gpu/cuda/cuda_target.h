// The figures of a GPU that were found by measuring one: kCudaTarget, by which plans are made, kCudaRegions, by which
// regions become kernels, and kCudaProducts, by which products do.
//
// What is not here stands with its kernel: sizes of blocks of threads, by which the kernel is written, and whatever
// says in which order terms are added, as tiles of products (few_rows_product.cu), because bits hang on it.
#pragma once

#include <cstdint>

#include "stepnet/core/target.h"

namespace stepnet {

// What is left out is what plans for threads alone ask.
//
// From an H200 (docs/performance.md), for estimates: products of float, memory, and the launch of a kernel. Chunks:
// with fewer rows stages overlap more, and products are slower; between 256 and 2048 rows four layers of LSTMUnit take
// the same time, with one chunk for all steps a quarter more. More queues gain nothing: each kernel has many blocks.
// Whatever can takes many steps at once, because a launch takes longer than the work of a step: a million operations
// take no longer (chosen). To copy weights takes as long as a few launches of steps.
inline constexpr Target kCudaTarget = {.device = DeviceKind::kCuda,
                                       .flops_per_microsecond = 20e6,
                                       .bytes_per_microsecond = 2e6,
                                       .microseconds_of_call = 4,
                                       .chunk_rows = 1024,
                                       .max_chunk_steps = 64,
                                       .takes_all_over_time = true,
                                       .max_bytes_to_merge = 32 << 20,
                                       .max_queues = 8,
                                       .max_repeated_operations = 1 << 20};

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

// Which kernel computes a product.
struct CudaProductSizes {
  // Multiplications up to which products of few rows are computed exactly, by the kernel for that (few_rows_product.h),
  // also where TF32 would do: tensor cores have too little to do. To be measured; lstm.cell with (B, H) = (32, 256),
  // whose steps multiply [32, 256] with 1 MB, took 0.79 ms in TF32 and 0.65 exactly, and with (64, 512), eight times as
  // many, tensor cores are faster (scripts/bench_gpu).
  std::int64_t max_exact_multiplications = std::int64_t{32} * 256 * 1024;
};
inline constexpr CudaProductSizes kCudaProducts = {};

}  // namespace stepnet
