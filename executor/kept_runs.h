// KeptRuns: the memory of an operator's runs, kept for later ones. A run of some plan takes that of an earlier run of
// it, also where runs of other plans were between them: batches of two sizes take turns, training and its test do.
//
// The run that begins and what is kept beside it take no more than twice the memory of the largest of them: two shapes
// that take turns are kept whole, ever new shapes cost twice what they would alone, and a single one costs what it
// needs. What no run has asked for in a while is freed, so that a shape that came once does not cost its memory for
// ever. Where memory runs short, all that is kept is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "stepnet/core/error.h"

namespace stepnet {

// Run has its `plan`, its `steps`, a RunState, and MemoryBytes().
template <typename Run>
class KeptRuns {
 public:
  // One of this plan, for which fits(run) holds, that nobody else holds; what `make` returns where there is none. The
  // run is about to need about `bytes`, or what it has where that is more.
  template <typename Plan, typename Make, typename Fits>
  std::shared_ptr<Run> Take(const std::shared_ptr<const Plan>& plan, double bytes, const Make& make, const Fits& fits) {
    const std::lock_guard lock(mutex_);
    ++num_taken_;
    const auto is_free = [&](const Kept& kept) { return IsIdle(kept) && kept.run->plan == plan && fits(*kept.run); };
    const auto found = std::find_if(runs_.begin(), runs_.end(), is_free);
    if (found != runs_.end()) {
      runs_.splice(runs_.begin(), runs_, found);
      bytes = std::max(bytes, BytesOf(*found));
    }
    DropOthers(/*is_first_taken=*/found != runs_.end(), bytes);
    if (found == runs_.end()) {
      runs_.push_front({.run = make()});
      // Those that others hold on to are forgotten here, and freed when they let go.
      if (runs_.size() > kMaxRuns) runs_.pop_back();
    }
    runs_.front().taken = num_taken_;
    return runs_.front().run;
  }

  template <typename Plan, typename Make>
  std::shared_ptr<Run> Take(const std::shared_ptr<const Plan>& plan, double bytes, const Make& make) {
    return Take(plan, bytes, make, [](const Run&) { return true; });
  }

  // Calls fn, which takes memory for a run; where there is too little of it, once more without what is kept for others.
  template <typename Fn>
  void TakeMemory(const Fn& fn) {
    try {
      fn();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory || !DropIdle()) throw;
      fn();
    }
  }

  // Drops what nobody holds. Returns whether there was anything.
  bool DropIdle() {
    const std::lock_guard lock(mutex_);
    return std::erase_if(runs_, IsIdle) > 0;
  }

 private:
  static constexpr size_t kMaxRuns = 4;
  static constexpr std::int64_t kMaxAge = 64;  // runs of the operator after which nobody is likely to ask again
  struct Kept {
    std::shared_ptr<Run> run;
    std::int64_t taken = 0;  // when, as a number of the operator's runs
  };

  static bool IsIdle(const Kept& kept) { return kept.run.use_count() == 1; }

  // Lets those that are idle, but for the first one where that is taken, let go of what they were lent, and drops what
  // is old or, the last used first, beyond the bound beside a run of `bytes`.
  void DropOthers(bool is_first_taken, double bytes) {
    const auto first = is_first_taken ? std::next(runs_.begin()) : runs_.begin();
    double largest = bytes;
    for (auto kept = first; kept != runs_.end(); ++kept) {
      if (IsIdle(*kept)) largest = std::max(largest, BytesOf(*kept));
    }
    double room = 2 * largest - bytes;
    for (auto next = first; next != runs_.end();) {
      const auto kept = next++;
      if (!IsIdle(*kept)) continue;
      kept->run->steps->ReleaseBases();
      room -= BytesOf(*kept);
      if (num_taken_ - kept->taken <= kMaxAge && room >= 0) continue;
      room += BytesOf(*kept);
      runs_.erase(kept);
    }
  }

  static double BytesOf(const Kept& kept) { return static_cast<double>(kept.run->MemoryBytes()); }

  std::mutex mutex_;
  std::list<Kept> runs_;  // the last used first
  std::int64_t num_taken_ = 0;
};

}  // namespace stepnet
