// KeptRuns: the memory of an operator's runs, kept for later ones. A run of some plan takes that of an earlier run of
// it, also where runs of other plans were between them: batches of two sizes take turns, training and its test do.
//
// The run that begins and what is kept beside it take no more than twice the memory of the largest of them: two shapes
// that take turns are kept whole, ever new shapes cost twice what they would alone, and a single one costs what it
// needs. What no run has asked for in a while is freed, so that a shape that came once does not cost its memory for
// ever. Where memory runs short, all that is kept is: of the host for whoever it is short, of a device for the
// operator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/spare_memory.h"

namespace stepnet {

// Run has its `plan`, its `steps`, a RunState, and MemoryBytes(). Safe to use from any thread.
template <typename Run>
class KeptRuns final : public SpareMemory {
 public:
  // What a device plays finds its memory where it was: nobody else frees that.
  explicit KeptRuns(Device device = {}) {
    if (device.IsHost()) Offer();
  }
  ~KeptRuns() { Withdraw(); }

  // One of this plan, for which fits(run) holds, that nobody else holds; what `make` returns where there is none. The
  // run is about to need about `bytes`, or what it has where that is more.
  template <typename Plan, typename Make, typename Fits>
  std::shared_ptr<Run> Take(const std::shared_ptr<const Plan>& plan, double bytes, const Make& make, const Fits& fits) {
    const std::shared_ptr<Run> kept = TakeKept(
        [&](const Kept& other) { return IsIdle(other) && other.run->plan == plan && fits(*other.run); }, bytes);
    if (kept != nullptr) return kept;
    const std::shared_ptr<Run> made = make();
    Runs dropped;
    const std::lock_guard lock(mutex_);
    runs_.push_front({.run = made, .taken = num_taken_});
    // Those that others hold on to are forgotten here, and freed when they let go.
    if (runs_.size() > kMaxRuns) dropped.splice(dropped.end(), runs_, std::prev(runs_.end()));
    return made;
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
    Runs dropped;
    const std::lock_guard lock(mutex_);
    for (auto next = runs_.begin(); next != runs_.end();) {
      const auto kept = next++;
      if (IsIdle(*kept)) dropped.splice(dropped.end(), runs_, kept);
    }
    return !dropped.empty();
  }

  double Gain() override {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(runs_, IsIdle) ? kOfNoUse : 0;
  }
  // Frees the one that was used longest ago.
  bool FreeNext() override {
    const std::lock_guard lock(mutex_);
    const auto last = std::find_if(runs_.rbegin(), runs_.rend(), IsIdle);
    if (last == runs_.rend()) return false;
    LetGo(std::move(last->run));
    runs_.erase(std::next(last).base());
    return true;
  }

 private:
  static constexpr size_t kMaxRuns = 4;
  static constexpr std::int64_t kMaxAge = 64;  // runs of the operator after which nobody is likely to ask again
  struct Kept {
    std::shared_ptr<Run> run;
    std::int64_t taken = 0;  // when, as a number of the operator's runs
  };

  // Runs that are dropped are destroyed behind the lock, as they offer spare memory of their own: whoever withdraws
  // waits for those who ask all owners for theirs, and these wait here. So may those whose memory runs were lent.
  using Runs = std::list<Kept>;

  static bool IsIdle(const Kept& kept) { return kept.run.use_count() == 1; }

  // The first one that is free for a run, which is about to need about `bytes`. Null where there is none.
  template <typename IsFree>
  std::shared_ptr<Run> TakeKept(const IsFree& is_free, double bytes) {
    std::shared_ptr<Run> taken;
    std::vector<std::shared_ptr<Run>> others;
    Runs dropped;
    {
      const std::lock_guard lock(mutex_);
      ++num_taken_;
      const auto found = std::find_if(runs_.begin(), runs_.end(), is_free);
      if (found != runs_.end()) {
        runs_.splice(runs_.begin(), runs_, found);
        bytes = std::max(bytes, BytesOf(*found));
        found->taken = num_taken_;
        taken = found->run;
      }
      dropped = DropOthers(bytes);
      for (const Kept& kept : runs_) {
        if (IsIdle(kept)) others.push_back(kept.run);
      }
    }
    for (const std::shared_ptr<Run>& other : others) other->steps->ReleaseBases();
    return taken;
  }

  // Takes out, of those that are idle, what is old or, the last used first, beyond the bound beside a run of `bytes`.
  Runs DropOthers(double bytes) {
    double largest = bytes;
    for (const Kept& kept : runs_) {
      if (IsIdle(kept)) largest = std::max(largest, BytesOf(kept));
    }
    Runs dropped;
    double room = 2 * largest - bytes;
    for (auto next = runs_.begin(); next != runs_.end();) {
      const auto kept = next++;
      if (!IsIdle(*kept)) continue;
      room -= BytesOf(*kept);
      if (num_taken_ - kept->taken <= kMaxAge && room >= 0) continue;
      room += BytesOf(*kept);
      dropped.splice(dropped.end(), runs_, kept);
    }
    return dropped;
  }

  static double BytesOf(const Kept& kept) { return static_cast<double>(kept.run->MemoryBytes()); }

  std::mutex mutex_;
  Runs runs_;  // the last used first
  std::int64_t num_taken_ = 0;
};

}  // namespace stepnet
