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
  const std::vector<RecomputedValue>& of_plan = record_.plan->recomputed;
  if (num_gone_ <= of_plan.size()) return of_plan;
  return std::span(*all_).first(num_gone_);
}

bool SpareValues::FreeNextInUse() {
  std::unique_lock lock(mutex_);
  if (num_users_ > 1) return false;
  lock.unlock();  // To find out what there is makes tensors, for which this may be asked for memory.
  if (!IsAnyLeft()) return false;
  lock.lock();
  if (num_users_ > 1) return false;
  FreeOne();
  return true;
}

double SpareValues::Gain() {
  const std::lock_guard lock(mutex_);
  if (num_users_ > 0 || record_.num_steps == 0 || !IsAnyLeft()) return 0;
  return (*all_)[num_gone_].BytesForTime();
}

bool SpareValues::FreeNext() {
  const std::lock_guard lock(mutex_);
  if (num_users_ > 0 || !IsAnyLeft()) return false;
  FreeOne();
  return true;
}

// Not where a device does its work later, nor where others read all of a run.
bool SpareValues::IsAnyLeft() {
  if (!all_) {
    const bool is_read_by_others = !record_.steps->device().IsHost() || record_.plan->keeps_all;
    all_ = is_read_by_others ? std::vector<RecomputedValue>() : RecomputableValues(*record_.forward, record_.inputs);
  }
  return num_gone_ < all_->size();
}

void SpareValues::FreeOne() {
  const StepPlan& plan = *record_.plan->steps;
  for (const std::string& blob : (*all_)[num_gone_].blobs) record_.steps->FreeKept(plan.finals.at(blob).slot);
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
