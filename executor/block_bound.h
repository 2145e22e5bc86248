// BlockBound: how long the blocks are (StepPlan::block_steps) of the plans by which an operator runs. Where a run finds
// too little memory, it is tried again by a plan with shorter ones, down to a chunk, which has the same bits and takes
// a little longer. Later runs begin with what was short enough.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/executor/number_for_limit.h"

namespace stepnet {

// Safe to use from any thread.
class BlockBound {
 public:
  // Steps that a block may have in the next run; 0: as many as suit the plan.
  std::int64_t Get() const { return steps_.Get(); }

  // Whether a run of so many steps may be tried with shorter ones.
  static bool MayLower(const StepPlan& plan, std::int64_t num_steps) {
    return std::min(plan.block_steps, num_steps) > LeastOf(plan);
  }
  // The bound to try next.
  static std::int64_t Lower(const StepPlan& plan, std::int64_t num_steps) {
    constexpr std::int64_t kShorter = 4;  // times, so that few plans are made
    const auto there = static_cast<std::uint64_t>(std::min(plan.block_steps, num_steps));
    return std::max(static_cast<std::int64_t>(std::bit_floor(there)) / kShorter, LeastOf(plan));
  }

  // There was memory for a run with this bound.
  void Keep(std::int64_t steps) { steps_.Keep(steps); }

 private:
  static std::int64_t LeastOf(const StepPlan& plan) { return std::max<std::int64_t>(plan.chunk_steps, 1); }

  NumberForLimit steps_;
};

}  // namespace stepnet
