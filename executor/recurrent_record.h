// RecurrentRecord: what a run of RecurrentNetwork leaves for its gradient and for those who fetch blobs of the step
// net. It is the object in the blob that Caffe2 calls step_workspaces.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/executor/run_state.h"
#include "stepnet/executor/spare_values.h"
#include "stepnet/nets/forward_operator.h"

namespace stepnet {

// The plan of the gradient that was computed last from a record of an operator, while somebody has it. Safe to use from
// any thread.
class RecentGradient {
 public:
  void Note(const std::shared_ptr<const ForwardPlan>& forward, const std::shared_ptr<const StepPlan>& plan) {
    const std::lock_guard lock(mutex_);
    forward_ = forward;
    plan_ = plan;
  }
  // Null where it was of runs of another plan.
  std::shared_ptr<const StepPlan> Of(const std::shared_ptr<const ForwardPlan>& forward) const {
    const std::lock_guard lock(mutex_);
    return forward_.lock() == forward ? plan_.lock() : nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::weak_ptr<const ForwardPlan> forward_;
  std::weak_ptr<const StepPlan> plan_;
};

struct RecurrentRecord {
  // `num_recomputed` is the operator's (SpareValues).
  explicit RecurrentRecord(std::shared_ptr<NumberForLimit> num_recomputed) : spare(*this, std::move(num_recomputed)) {}

  std::shared_ptr<const ForwardPlan> plan;
  std::shared_ptr<const ForwardOperator> forward;
  std::vector<TensorInfo> inputs;  // as they were in the forward run
  std::int64_t num_steps = 0;
  std::uint64_t run = 0;                            // number of the run, by which random numbers are drawn again
  std::vector<std::unique_ptr<Blob>> states;        // [T + L, B, …], or with the rows of a ring
  std::vector<std::unique_ptr<Blob>> step_outputs;  // [T, …]
  Blob timesteps{"timesteps"};                      // 0 … T-1, int32 [T]
  std::unique_ptr<RunState> steps;
  mutable std::atomic_flag is_lent;          // the memory for temporaries
  std::shared_ptr<RecentGradient> gradient;  // of the operator
  mutable SpareValues spare;                 // behind what it frees

  std::int64_t MemoryBytes() const {
    const RecordUse use(*this);
    return BytesOf(states) + BytesOf(step_outputs) + BytesOf(timesteps) + steps->MemoryBytes();
  }
};

// A run back has its temporaries where the run forward had its own, as long as this lives. Where another one does, the
// device does its work later, or all of the run forward is read, it has memory of its own.
class BorrowedTemporaries {
 public:
  BorrowedTemporaries(const RecurrentRecord& record, RunState* borrower);
  BorrowedTemporaries(const BorrowedTemporaries&) = delete;
  BorrowedTemporaries& operator=(const BorrowedTemporaries&) = delete;
  ~BorrowedTemporaries();

 private:
  std::atomic_flag* is_lent_ = nullptr;  // of the record; null: nothing is borrowed
  RunState* borrower_;
};

// What the states of a run take, and so do their gradients.
double BytesOfStates(const ForwardPlan& plan, std::int64_t num_steps);

// What the arena of a run back needs beside what the run forward lends.
std::int64_t BytesOfStepsBack(const RecurrentRecord& record, const StepPlan& backward);

// What was thrown where a run, or its gradient, took its memory. Where there was too little, with what all of it takes:
// states and what the steps compute, and the same of the gradient, where its plan is known.
Error WithNeeds(const Error& error, const RecurrentRecord& record);

// Checks that input `i` of a recurrent operator, named `name`, fits the links that see it and gives num_steps steps.
void CheckSequence(const std::vector<Link>& links, const std::string& name, const Tensor& tensor,
                   std::int64_t num_steps);

}  // namespace stepnet
