#include "stepnet/core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <set>

#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

// Counts who is inside, and leaves when the caller has seen `visits` helpers come.
class Visits : public SharedWork {
 public:
  Visits(int helpers, int visits, bool invites) : helpers_(helpers), visits_(visits), invites_(invites) {}

  void Join(int lane) override {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(inside_.insert(lane).second) << "two are in lane " << lane;
    EXPECT_LE(lane, helpers_);
    if (lane == 0) {
      WaitForVisits(lock);
    } else {
      sigset_t blocked;
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      EXPECT_TRUE(sigismember(&blocked, SIGTERM)) << "a helper would handle the program's signals";
      ++seen_;
      came_.notify_all();
    }
    inside_.erase(lane);
  }
  int seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  // Gives up after a time that only lost invitations take. One alone is void while the last helper is about to leave.
  void WaitForVisits(std::unique_lock<std::mutex>& lock) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (seen_ < visits_ && std::chrono::steady_clock::now() < end) {
      const int before = seen_;
      if (invites_ && before > 0) {
        lock.unlock();
        ThreadPool::Process().Invite(*this, 1);
        lock.lock();
      }
      came_.wait_for(lock, std::chrono::milliseconds(20), [&] { return seen_ > before; });
    }
  }

  const int helpers_;
  const int visits_;
  const bool invites_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::set<int> inside_;
  int seen_ = 0;
};

TEST(ThreadPool, EveryHelperThatIsAskedForComesWhereTheCallerWaits) {
  for (const int helpers : {0, 1, 2, 5}) {
    for (int run = 0; run < 50; ++run) {
      const auto work = std::make_shared<Visits>(helpers, helpers, /*invites=*/false);
      ThreadPool::Process().Run(work, helpers);
      EXPECT_EQ(work->seen(), helpers);
    }
  }
}

// It has no threads but the one that forked, and makes others. Its exit does not wait for those that there were.
TEST(ThreadPool, AProcessThatWasForkedHasHelpersOfItsOwn) {
  if constexpr (kIsSanitized) GTEST_SKIP() << "sanitizers look after threads of their own, which a fork loses";
  const auto are_seen = [](int helpers) {
    const auto work = std::make_shared<Visits>(helpers, helpers, /*invites=*/false);
    ThreadPool::Process().Run(work, helpers);
    return work->seen() == helpers;
  };
  ASSERT_TRUE(are_seen(2));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    std::exit(are_seen(2) && are_seen(3) ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(ThreadPool, HelpersThatHaveLeftAreCalledBack) {
  for (const int helpers : {1, 3}) {
    const auto work = std::make_shared<Visits>(helpers, 200, /*invites=*/true);
    ThreadPool::Process().Run(work, helpers);
    EXPECT_GE(work->seen(), 200);
  }
}

// Helpers stay inside until the caller has returned from Run, which a Run that waits for them never does.
class Lingering : public SharedWork {
 public:
  explicit Lingering(std::atomic<bool>* returned, std::atomic<int>* gone) : returned_(returned), gone_(gone) {}
  ~Lingering() override { ++*gone_; }
  void Join(int lane) override {
    if (lane == 0) {
      came_.wait(false);
      return;
    }
    came_ = true;
    came_.notify_all();
    returned_->wait(false);
  }

 private:
  std::atomic<bool> came_ = false;
  std::atomic<bool>* returned_;
  std::atomic<int>* gone_;
};

TEST(ThreadPool, RunDoesNotWaitForHelpersWhoseWorkLivesOn) {
  std::atomic<bool> returned = false;
  std::atomic<int> gone = 0;
  ThreadPool::Process().Run(std::make_shared<Lingering>(&returned, &gone), 1);
  EXPECT_EQ(gone, 0) << "the helper holds it";
  returned = true;
  returned.notify_all();
  while (gone == 0) std::this_thread::yield();
}

// Each level takes what it finds free; none waits for another.
class Nested : public SharedWork {
 public:
  explicit Nested(int depth, std::atomic<int>* done) : depth_(depth), done_(done) {}
  void Join(int lane) override {
    if (lane != 0) return;
    if (depth_ > 0) {
      ThreadPool::Process().Run(std::make_shared<Nested>(depth_ - 1, done_), 2);
    }
    ++*done_;
  }

 private:
  const int depth_;
  std::atomic<int>* done_;
};

TEST(ThreadPool, RunsWithinRunsAndInSeveralThreads) {
  std::atomic<int> done = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&done] {
        for (int run = 0; run < 100; ++run) {
          ThreadPool::Process().Run(std::make_shared<Nested>(3, &done), 2);
        }
      });
    }
  }
  EXPECT_EQ(done, 4 * 100 * 4);
}

}  // namespace
}  // namespace stepnet
