// Target: what plans depend on of the machine that they are for. A device has one; plans and schedules ask it for every
// figure that was found by measuring, and never whose it is.
#pragma once

#include <cstdint>

#include "stepnet/core/device.h"

namespace stepnet {

struct Target {
  Device device = Device::kCpu;

  // Rough speed of one core.
  double flops_per_microsecond = 80e3;
  double bytes_per_microsecond = 40e3;
  double microseconds_of_call = 0.05;
  double microseconds_to_wake = 40;  // until a thread of the pool that slept takes part in a run

  // Elementwise instructions have parts of so many bytes and more; others say themselves how many parts they have.
  std::int64_t min_part_bytes = 32 * 1024;
  // A part in a loop takes so long and more, a part of what runs once for all steps about so long.
  double min_part_microseconds = 3;
  double part_microseconds = 200;
  // How much shorter a run must be for more threads to be worth it: below, estimates are too rough.
  double min_gain_of_threads = 1.1;
  int max_threads = 64;  // beyond, no schedule is tried

  // Stages take steps in chunks of so many rows, enough for a product to be fast, within these limits, so that stages
  // overlap.
  std::int64_t chunk_rows = 64;
  std::int64_t min_chunk_steps = 4;
  std::int64_t max_chunk_steps = 64;
  // What all steps share must be so many times as large as what one has of its own for many steps at once to gain.
  std::int64_t min_shared_ratio = 4;
  // Runs of fewer steps do without packed inputs: to make them would take longer than they save. How many steps that is
  // depends on the rows (--stats tells what packing takes; bench, ProductLayout, what a step gains).
  std::int64_t min_steps_to_pack = 48;
  std::int64_t ring_rows = 4;  // how many steps may be under way at once where nobody says; a power of two
};

inline constexpr Target kCpuTarget = {};

}  // namespace stepnet
