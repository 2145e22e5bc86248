// Cancellation: asks a run to stop, from any thread or after a time.
#pragma once

#include <atomic>
#include <chrono>

#include "stepnet/core/error.h"

namespace stepnet {

// Nets look at it before each operator, recurrent ones before each step; a run that is asked to stop throws kCancelled
// once nothing is running any more, and its net can be run again.
class Cancellation {
 public:
  Cancellation() = default;
  // Asks for it when `limit` is over.
  explicit Cancellation(std::chrono::duration<double> limit)
      : limit_(limit), end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<Clock::duration>(limit)) {}

  void Cancel() { cancelled_ = true; }

  // Throws kCancelled when the run is to stop.
  void Check() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> cancelled_ = false;
  std::chrono::duration<double> limit_{};
  Clock::time_point end_ = Clock::time_point::max();
};

}  // namespace stepnet
