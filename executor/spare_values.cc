#include "stepnet/executor/spare_values.h"

#include <algorithm>

#include "stepnet/executor/recurrent_record.h"

namespace stepnet {

void SpareValues::Begin() {
  const std::lock_guard lock(mutex_);
  num_gone_ = record_.plan->recomputed.size();
}

std::span<const RecomputedValue> SpareValues::Recomputed() const {
  const std::lock_guard lock(mutex_);
  return std::span(record_.plan->recomputable).first(num_gone_);
}

bool SpareValues::FreeNextInUse() {
  const std::lock_guard lock(mutex_);
  if (num_users_ > 1 || !HasMore()) return false;
  FreeOne();
  return true;
}

double SpareValues::Gain() {
  const std::lock_guard lock(mutex_);
  if (num_users_ > 0 || record_.num_steps == 0 || !HasMore()) return 0;
  return record_.plan->recomputable[num_gone_].BytesForTime();
}

bool SpareValues::FreeNext() {
  const std::lock_guard lock(mutex_);
  if (num_users_ > 0 || !HasMore()) return false;
  FreeOne();
  return true;
}

bool SpareValues::HasMore() const { return num_gone_ < record_.plan->recomputable.size(); }

void SpareValues::FreeOne() {
  const ForwardPlan& plan = *record_.plan;
  for (const std::string& blob : plan.recomputable[num_gone_].blobs) {
    record_.steps->FreeKept(plan.steps->finals.at(blob).slot);
  }
  num_recomputed_->Keep(static_cast<std::int64_t>(++num_gone_));
}

RecordUse::RecordUse(const RecurrentRecord& record) : spare_(record.spare) {
  const std::lock_guard lock(spare_.mutex_);
  ++spare_.num_users_;
}

RecordUse::~RecordUse() {
  const std::lock_guard lock(spare_.mutex_);
  --spare_.num_users_;
}

}  // namespace stepnet
