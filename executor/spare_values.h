// SpareValues: what a record keeps and the run back can compute again. Where memory is short it is freed, one value
// after the other, and later runs do not keep it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "stepnet/compiler/recomputed_value.h"
#include "stepnet/core/spare_memory.h"
#include "stepnet/executor/number_for_limit.h"

namespace stepnet {

struct RecurrentRecord;

// Safe to use from any thread.
class SpareValues final : public SpareMemory {
 public:
  // `num_recomputed` is the operator's: of ForwardPlan::recomputable, how many values runs do without.
  SpareValues(const RecurrentRecord& record, std::shared_ptr<NumberForLimit> num_recomputed)
      : record_(record), num_recomputed_(std::move(num_recomputed)) {
    Offer();
  }
  ~SpareValues() { Withdraw(); }

  // A run forward is about to keep what its plan says. REQUIRES: nobody else uses the record.
  void Begin();
  // What is not there, and is to be computed again. REQUIRES: the caller uses the record, and it has run.
  std::span<const RecomputedValue> Recomputed() const;
  // Frees one more, for the only one who uses the record. Returns whether there was one, and nobody else.
  bool FreeNextInUse();

  double Gain() override;
  bool FreeNext() override;

 private:
  friend class RecordUse;
  bool HasMore() const;  // REQUIRES mutex_
  void FreeOne();

  const RecurrentRecord& record_;
  const std::shared_ptr<NumberForLimit> num_recomputed_;
  mutable std::mutex mutex_;
  int num_users_ = 0;
  size_t num_gone_ = 0;  // of the plan's `recomputable`, the first ones
};

// Nobody else frees what a record keeps as long as this lives.
class RecordUse {
 public:
  explicit RecordUse(const RecurrentRecord& record);
  RecordUse(const RecordUse&) = delete;
  RecordUse& operator=(const RecordUse&) = delete;
  ~RecordUse();

 private:
  SpareValues& spare_;
};

}  // namespace stepnet
