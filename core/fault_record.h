// FaultRecord: the first of the bad values that kernels find (indices, labels, lengths), by their places in the net and
// not by when threads find them.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
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
  std::mutex mutex_;
  std::optional<Fault> first_;
};

}  // namespace stepnet
