#include "stepnet/core/cancellation.h"

#include "stepnet/core/strings.h"

namespace stepnet {

void Cancellation::Check() const {
  if (cancelled_.load(std::memory_order_relaxed)) throw Error(ErrorCode::kCancelled, "the run was cancelled");
  if (end_ == Clock::time_point::max() || Clock::now() < end_) return;
  throw Error(ErrorCode::kCancelled, StrCat("the run took longer than its limit of ", limit_.count(), " s"));
}

}  // namespace stepnet
