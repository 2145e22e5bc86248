#include "stepnet/core/cancellation.h"

#include <utility>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

thread_local constinit const Cancellation* current = nullptr;

// Between two questions whether a run shall stop. Whoever presses a key does not notice it.
constexpr std::chrono::milliseconds kBetweenQuestions{50};

}  // namespace

Cancellation::Cancellation(std::chrono::duration<double> limit) : limit_(limit) {
  const Clock::time_point now = Clock::now();
  // Half of what is left to the clock: a double says no number of nanoseconds of that size exactly.
  if (limit < std::chrono::duration<double>(end_ - now) / 2) {
    end_ = now + std::chrono::duration_cast<Clock::duration>(limit);
  }
}

Cancellation::Cancellation(std::function<bool()> wanted)
    : wanted_(std::move(wanted)), asker_(std::this_thread::get_id()), next_ask_(Clock::now() + kBetweenQuestions) {}

void Cancellation::Ask() const {
  const Clock::time_point now = Clock::now();
  if (now < next_ask_) return;
  if (wanted_()) cancelled_.store(true, std::memory_order_relaxed);
  next_ask_ = Clock::now() + kBetweenQuestions;
}

void Cancellation::Check() const {
  if (wanted_ && std::this_thread::get_id() == asker_) Ask();
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
