#include "stepnet/core/cancellation.h"

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "stepnet/core/thread_pool.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(Cancellation, LimitsThatTheClockCannotReachAreNone) {
  for (const double seconds : {1e9, 1e10, 1e18, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_NO_THROW(Cancellation(std::chrono::duration<double>(seconds)).Check()) << seconds;
  }
  ExpectError([] { Cancellation(std::chrono::duration<double>(0)).Check(); },
              "cancelled: the run took longer than its limit of 0 s");
}

TEST(Cancellation, AsksTheThreadThatMadeItAndNoOther) {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> asked = 0;
  std::atomic<bool> asked_here_alone = true, stop = false;
  const Cancellation cancellation([&] {
    ++asked;
    if (std::this_thread::get_id() != here) asked_here_alone = false;
    return stop.load();
  });
  std::atomic<bool> other_stopped = false;
  std::thread other([&] {
    const CancellationScope scope(&cancellation);
    try {
      for (;;) CheckCancelled();
    } catch (const Error&) {
      other_stopped = true;
    }
  });
  const CancellationScope scope(&cancellation);
  while (asked < 3) ASSERT_NO_THROW(CheckCancelled());
  stop = true;
  ExpectError(
      [] {
        for (;;) CheckCancelled();
      },
      "cancelled: the run was cancelled");
  other.join();
  EXPECT_TRUE(other_stopped);
  EXPECT_TRUE(asked_here_alone);
  EXPECT_EQ(asked, 4);
}

TEST(Cancellation, AThreadWorksUnderThatOfTheInnermostScope) {
  EXPECT_NO_THROW(CheckCancelled());
  Cancellation cancelled;
  cancelled.Cancel();
  const Cancellation goes_on;
  const CancellationScope outer(&cancelled);
  ExpectError([] { CheckCancelled(); }, "cancelled: the run was cancelled");
  {
    const CancellationScope inner(&goes_on);
    EXPECT_NO_THROW(CheckCancelled());
    const CancellationScope nothing(nullptr);
    EXPECT_NO_THROW(CheckCancelled());
  }
  ExpectError([] { CheckCancelled(); }, "cancelled: the run was cancelled");
  std::thread([] { EXPECT_EQ(CurrentCancellation(), nullptr); }).join();
}

// Leaves when a helper has told what it works under.
class Asks : public SharedWork {
 public:
  void Join(int lane) override {
    if (lane == 0) {
      asked_.wait(false);
    } else {
      under_ = CurrentCancellation();
      asked_ = true;
      asked_.notify_all();
    }
  }
  const Cancellation* under() const { return under_; }

 private:
  std::atomic<const Cancellation*> under_ = nullptr;
  std::atomic<bool> asked_ = false;
};

TEST(Cancellation, ThreadsOfThePoolWorkUnderThatOfTheCaller) {
  const Cancellation cancellation;
  for (const Cancellation* of_caller : {&cancellation, static_cast<const Cancellation*>(nullptr)}) {
    const CancellationScope scope(of_caller);
    const auto work = std::make_shared<Asks>();
    ThreadPool::Process().Run(work, 1);
    EXPECT_EQ(work->under(), of_caller);
  }
}

TEST(Cancellation, BlocksCoverAllOnceAndAreCheckedBetween) {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, kWorkOfBlock, 3 * kWorkOfBlock + 1}) {
    for (const std::int64_t cost : {1, 7, 1 << 10, 1 << 30}) {
      std::int64_t next = 0;
      InBlocks(count, cost, [&](std::int64_t begin, std::int64_t end) {
        ASSERT_EQ(begin, next);
        ASSERT_LT(begin, end);
        next = end;
      });
      EXPECT_EQ(next, count);
    }
  }
  Cancellation cancellation;
  const CancellationScope scope(&cancellation);
  int blocks = 0;
  const auto run = [&] {
    InBlocks(10, std::int64_t{1} << 60, [&](std::int64_t, std::int64_t) {
      if (++blocks == 3) cancellation.Cancel();
    });
  };
  ExpectError(run, "cancelled: the run was cancelled");
  EXPECT_EQ(blocks, 3);
}

}  // namespace
}  // namespace stepnet
