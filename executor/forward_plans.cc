#include "stepnet/executor/forward_plans.h"

#include <algorithm>
#include <bit>

namespace stepnet {
namespace {

std::string BytesOf(const ForwardPlans::Sizes& sizes) {
  std::string bytes;
  for (const auto& [input, tensor] : sizes) {
    const TensorView view = tensor.View();
    bytes.append(static_cast<const char*>(view.data), static_cast<size_t>(view.size_bytes()));
  }
  return bytes;
}

std::int64_t LeastBlock(const StepPlan& plan) { return std::max<std::int64_t>(plan.chunk_steps, 1); }

}  // namespace

ForwardPlans::ForwardPlans(std::shared_ptr<const ForwardOperator> forward)
    : forward_(std::move(forward)),
      seen_by_rows_(SeenByRows(forward_->op.inputs(), forward_->spec->links, *forward_->spec->step_net)) {}

ForwardPlans::Choice::Choice(ForwardPlans& plans, const std::vector<TensorInfo>& inputs, Sizes sizes)
    : plans_(plans),
      inputs_(inputs),
      sizes_(std::move(sizes)),
      num_steps_(inputs[0].shape[0]),
      less_{.max_block_steps = plans.max_block_steps_.Get(), .num_recomputed = plans.num_recomputed_->Get()} {
  FindPlan();
  num_better_ = NumBetterRecomputed(*plan_, num_steps_);
  if (num_better_ <= less_.num_recomputed) return;
  less_.num_recomputed = num_better_;
  FindPlan();
}

void ForwardPlans::Choice::FindPlan() {
  plan_ = plans_.plans_.Get({PlanKey(inputs_, plans_.seen_by_rows_), BytesOf(sizes_), less_}, [&] {
    std::vector<TensorInfo> with_sizes = inputs_;
    for (const auto& [input, tensor] : sizes_) with_sizes[input].value = tensor.Clone();
    return MakeForwardPlan(*plans_.forward_, with_sizes, less_);
  });
}

bool ForwardPlans::Choice::HasShorterBlocks() const {
  return std::min(plan_->steps->block_steps, num_steps_) > LeastBlock(*plan_->steps);
}

bool ForwardPlans::Choice::HasLess() const {
  return HasShorterBlocks() || plan_->recomputed.size() < plan_->recomputable.size();
}

void ForwardPlans::Choice::TakeLess() {
  constexpr std::int64_t kShorter = 4;  // times, so that few plans are made
  if (HasShorterBlocks()) {
    const auto there = static_cast<std::uint64_t>(std::min(plan_->steps->block_steps, num_steps_));
    const auto shorter = static_cast<std::int64_t>(std::bit_floor(there)) / kShorter;
    less_.max_block_steps = std::max(shorter, LeastBlock(*plan_->steps));
  } else {
    less_.num_recomputed = std::ssize(plan_->recomputed) + 1;
  }
  FindPlan();
}

void ForwardPlans::Choice::Keep() const {
  plans_.max_block_steps_.Keep(less_.max_block_steps);
  if (less_.num_recomputed > num_better_) plans_.num_recomputed_->Keep(less_.num_recomputed);
}

}  // namespace stepnet
