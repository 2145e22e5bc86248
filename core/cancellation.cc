#include "stepnet/core/cancellation.h"

#include <utility>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

thread_local constinit const Cancellation* current = nullptr;

}  // namespace

Cancellation::Cancellation(std::chrono::duration<double> limit) : limit_(limit) {
  const Clock::time_point now = Clock::now();
  // Half of what is left to the clock: a double says no number of nanoseconds of that size exactly.
  if (limit < std::chrono::duration<double>(end_ - now) / 2) {
    end_ = now + std::chrono::duration_cast<Clock::duration>(limit);
  }
}

void Cancellation::Check() const {
  if (cancelled_.load(std::memory_order_relaxed)) throw Error(ErrorCode::kCancelled, "the run was cancelled");
  if (end_ == Clock::time_point::max() || Clock::now() < end_) return;
  throw Error(ErrorCode::kCancelled, StrCat("the run took longer than its limit of ", limit_.count(), " s"));
}

const Cancellation* CurrentCancellation() { return current; }

void internal::LookAgain() {
  work_left = kWorkOfBlock;
  CheckCancelled();
}

CancellationScope::CancellationScope(const Cancellation* cancellation)
    : before_(std::exchange(current, cancellation)) {}

CancellationScope::~CancellationScope() { current = before_; }

}  // namespace stepnet
