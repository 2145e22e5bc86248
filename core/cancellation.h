// Cancellation: asks a run to stop, from any thread or after a time.
//
// A thread works under at most one at a time: whoever starts something that may be stopped opens a CancellationScope,
// and everything that may take long calls CheckCancelled from time to time: nets before each operator, recurrent ones
// before each step, kernels between blocks of elements (CountWork), readers of files between reads. Threads of the pool
// work under that of the thread that they help.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "stepnet/core/error.h"

namespace stepnet {

// What is asked to stop throws kCancelled once nothing is running any more, and its net can be run again.
class Cancellation {
 public:
  Cancellation() = default;
  // Asks for it when `limit` is over; a limit that the clock cannot reach, as infinity, never is. REQUIRES limit >= 0.
  explicit Cancellation(std::chrono::duration<double> limit);
  // Asks for it when `wanted` says so, which is called now and then, some twenty times a second at most, by the thread
  // that makes this object and by no other: for programs in which one thread alone may look whether a signal has come.
  explicit Cancellation(std::function<bool()> wanted);

  void Cancel() { cancelled_ = true; }

  // Throws kCancelled when the run is to stop.
  void Check() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Ask() const;

  mutable std::atomic<bool> cancelled_ = false;  // which Ask sets, too
  std::chrono::duration<double> limit_{};
  Clock::time_point end_ = Clock::time_point::max();
  const std::function<bool()> wanted_ = {};
  const std::thread::id asker_ = {};  // the thread that calls wanted_
  mutable Clock::time_point next_ask_ = {};
};

// What the calling thread works under, null for nothing.
const Cancellation* CurrentCancellation();

// Throws kCancelled when what the calling thread works under asks for it.
inline void CheckCancelled() {
  if (const Cancellation* current = CurrentCancellation()) current->Check();
}

// Until it ends, the calling thread works under `cancellation`, or under nothing where that is null.
class CancellationScope {
 public:
  explicit CancellationScope(const Cancellation* cancellation);
  ~CancellationScope();
  CancellationScope(const CancellationScope&) = delete;
  CancellationScope& operator=(const CancellationScope&) = delete;

 private:
  const Cancellation* before_;
};

// Work is counted in what takes about a nanosecond, as an element that is read, worked on and written.
inline constexpr std::int64_t kWorkOfBlock = 1 << 20;
inline constexpr std::int64_t kWorkOfString = 50;  // that is copied, which may take memory

namespace internal {

// Until the calling thread looks again: a millisecond or some.
inline thread_local constinit std::int64_t work_left = 0;
void LookAgain();

}  // namespace internal

// What kernels call before a part of their work, of kWorkOfBlock at most: CheckCancelled, as often as is worth it.
inline void CountWork(std::int64_t work) {
  if ((internal::work_left -= work) < 0) internal::LookAgain();
}

// Calls body(begin, end) for one block of [0, count) after the other, and counts their work. The blocks do not depend
// on whether there is anything to check.
template <typename Body>
void InBlocks(std::int64_t count, std::int64_t work_of_one, const Body& body) {
  const std::int64_t block = std::max<std::int64_t>(1, kWorkOfBlock / std::max<std::int64_t>(1, work_of_one));
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t end = count - begin > block ? begin + block : count;
    CountWork((end - begin) * work_of_one);
    body(begin, end);
    begin = end;
  }
}

}  // namespace stepnet
