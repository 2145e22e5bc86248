// BlockBound: how long the blocks are (StepPlan::block_steps) of the plans by which an operator runs. Where a run finds
// too little memory, it is tried again by a plan with shorter ones, down to a chunk, which has the same bits and takes
// a little longer. Later runs begin with what was short enough, until the limit of tensor memory is another.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

// Safe to use from any thread.
class BlockBound {
 public:
  // Steps that a block may have in the next run; 0: as many as suit the plan.
  std::int64_t Get() const { return limit_ == TensorMemory().limit ? steps_.load() : 0; }

  // Whether a run of so many steps, which got `error` where it took memory, may be tried with less.
  static bool MayLower(const Error& error, const StepPlan& plan, std::int64_t num_steps) {
    return error.code() == ErrorCode::kOutOfMemory && std::min(plan.block_steps, num_steps) > LeastOf(plan);
  }
  // The bound to try next.
  static std::int64_t Lower(const StepPlan& plan, std::int64_t num_steps) {
    constexpr std::int64_t kShorter = 4;  // times, so that few plans are made
    const auto there = static_cast<std::uint64_t>(std::min(plan.block_steps, num_steps));
    return std::max(static_cast<std::int64_t>(std::bit_floor(there)) / kShorter, LeastOf(plan));
  }

  // There was memory for a run with this bound.
  void Keep(std::int64_t steps) {
    limit_ = TensorMemory().limit;
    steps_ = steps;
  }

 private:
  static std::int64_t LeastOf(const StepPlan& plan) { return std::max<std::int64_t>(plan.chunk_steps, 1); }

  std::atomic<std::int64_t> limit_ = 0, steps_ = 0;
};

}  // namespace stepnet
