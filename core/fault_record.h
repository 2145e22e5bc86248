// FaultRecord: the first of what goes wrong in a run, bad values that kernels find (indices, labels, lengths) and what
// operators throw, by places in the net and not by when threads get there.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "stepnet/core/error.h"

namespace stepnet {

// Faults are ordered as one thread would meet them, step after step and operator after operator.
struct FaultPlace {
  std::int64_t step = 0;  // in the order in which steps run
  std::int64_t op = 0;    // in its net
  std::int64_t element = 0;
  auto operator<=>(const FaultPlace&) const = default;
};

struct Fault {
  FaultPlace place;
  Error error;
};

class FaultRecord {
 public:
  // Safe to call from any thread, and as cheap as a load.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Whether one is known that comes before everything at this place.
  bool HasBefore(const FaultPlace& place) const {
    if (!any()) return false;
    const std::lock_guard lock(mutex_);
    return first_ && first_->place < place;
  }

  // Keeps the fault unless one is known that comes first. `make_error` is called for what is kept.
  template <typename MakeError>
  void Note(const FaultPlace& place, const MakeError& make_error) {
    const std::lock_guard lock(mutex_);
    if (first_ && first_->place <= place) return;
    first_.emplace(Fault{.place = place, .error = make_error()});
    any_.store(true, std::memory_order_relaxed);
  }

  // The first of those that were noted, which are forgotten.
  std::optional<Fault> Take() {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(first_, std::nullopt);
  }

  // Throws the error of the first, if any; forgets all.
  void Throw() {
    if (!any()) return;
    if (std::optional<Fault> first = Take()) throw std::move(first->error);
  }

 private:
  std::atomic<bool> any_ = false;
  mutable std::mutex mutex_;
  std::optional<Fault> first_;
};

// Where the kernel that runs is, for those who place what it finds when the run is over.
struct FaultSite {
  int net_op = 0;               // the operator of the net
  std::int64_t first_step = 0;  // of the steps that it runs for, in the order in which steps run
  std::int64_t op = 0;          // the operator of the step net
};

// The faults of a run of a net on a device that does its work later: kernels note them in memory of the device, and the
// host looks when the run is over, in place of waiting for each kernel that checks values. Not thread-safe.
class LateFaults {
 public:
  struct Found {
    int net_op = 0;
    Fault fault;  // of one operator: its error says nothing of a place
  };
  // Says in an error where in a step net it is.
  using Placing = std::function<Error(Fault fault)>;

  virtual ~LateFaults() = default;
  // A kernel that may note faults has been put in.
  void SetPending() { ++num_kernels_; }
  bool pending() const { return num_kernels_ > num_looked_at_; }
  std::int64_t num_kernels() const { return num_kernels_; }
  // What an operator of the net that has a step net does with faults from there.
  void SetPlacing(int net_op, Placing placing) { placings_[net_op] = std::move(placing); }

  // The first of those noted since the last call, placed; all are forgotten. Waits for the device.
  std::optional<Found> Take() {
    num_looked_at_ = num_kernels_;
    std::optional<Found> found = TakeNoted();
    if (!found) return std::nullopt;
    if (const auto placing = placings_.find(found->net_op); placing != placings_.end()) {
      found->fault.error = placing->second(found->fault);
    }
    return found;
  }

 protected:
  virtual std::optional<Found> TakeNoted() = 0;

 private:
  std::int64_t num_kernels_ = 0;
  std::int64_t num_looked_at_ = 0;
  std::map<int, Placing> placings_;  // by operator of the net
};

}  // namespace stepnet
