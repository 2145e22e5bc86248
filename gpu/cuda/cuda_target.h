// kCudaTarget: the figures by which plans for a GPU are made. What is left out is what plans for threads alone ask.
//
// Sizes of blocks of threads are with their kernels: the order of sums, and so the bits, hang on them.
#pragma once

#include "stepnet/core/target.h"

namespace stepnet {

// From an H200 (docs/performance.md), for estimates: products of float, memory, and the launch of a kernel. Chunks:
// with fewer rows stages overlap more, and products are slower; between 256 and 2048 rows four layers of LSTMUnit take
// the same time, with one chunk for all steps a quarter more. More queues gain nothing: each kernel has many blocks.
// Whatever can takes many steps at once, because a launch takes longer than the work of a step: a million operations
// take no longer (chosen).
inline constexpr Target kCudaTarget = {.device = DeviceKind::kCuda,
                                       .flops_per_microsecond = 20e6,
                                       .bytes_per_microsecond = 2e6,
                                       .microseconds_of_call = 4,
                                       .chunk_rows = 1024,
                                       .max_chunk_steps = 64,
                                       .takes_all_over_time = true,
                                       .max_queues = 8,
                                       .max_repeated_operations = 1 << 20};

}  // namespace stepnet
