// A round is one task of one step, or for the batch the whole stage; rounds follow each other. A thread is told of
// nothing: it sees in the counters of all parts that a round is over. Parts of threads that have not come are done by
// those that wait, so the caller alone can do everything. Where a thread has several parts, others also take those that
// it has not begun when they have done theirs: cores are not equally fast, as where two are one that is shared, or
// another program has a share. Where other processes keep threads from their cores again and
// again, so that hardly more than one is awake, helpers leave between two rounds, and the caller goes on alone.
//
// tests/models/lockstep.pml is LockstepRun as a model that is checked; changes here are made there too.
#include "stepnet/executor/lockstep.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/target.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/core/weights_order.h"
#include "stepnet/executor/executor.h"

namespace stepnet {
namespace {

class LockstepRun : public SharedWork {
 public:
  LockstepRun(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, const Schedule& schedule,
              RunContext& context)
      : state_(state),
        stage_(stage),
        schedule_(schedule),
        context_(context),
        is_watched_(!context.observers.empty()),
        look_out_(state.plan().target->microseconds_to_look_out),
        min_sleeps_(state.plan().target->min_rounds_to_leave * (schedule.threads - 1)),
        min_awake_(state.plan().target->min_threads_awake),
        num_tasks_(static_cast<std::int64_t>(schedule.tasks.size())),
        begin_(begin),
        end_(end),
        num_rounds_(schedule.sharing == Sharing::kBatch ? 1 : num_tasks_ * (end - begin)),
        num_threads_(schedule.threads),
        parts_(MostParts(schedule)),
        has_thread_(schedule.threads) {
    for (const Task& task : schedule.tasks) shares_.push_back({.threads = task.parts, .cuts = task.cuts});
  }

  void Join(int lane) override {
    if (lane == 0) {
      Try([&] { GoThrough(lane); });
      if (over_) StopParts();
      WaitForWatched();
    } else if (!is_watched_) {
      Try([&] { GoThrough(lane); });
    } else if (Enter()) {
      Try([&] {
        const ObservedScope scope(context_.lanes[lane].observers, state_.LoopEvent(RunEventKind::kLoop));
        GoThrough(lane);
      });
      Leave();
    }
  }

  // Throws what the first failing instruction threw.
  void Check() { failure_.Rethrow(); }

 private:
  // The counters only grow.
  struct alignas(kLineBytes) Part {
    std::atomic<std::int64_t> begun = 0;  // rounds whose part somebody has taken
    std::atomic<std::int64_t> done = 0;   // and how many of them have ended
  };
  static constexpr std::int64_t kNeverMore = std::int64_t{1} << 62;

  // How many threads have parts of a task, and how many each. Thread k has those from k * cuts on, if it comes.
  struct Shares {
    int threads;
    int cuts;

    int parts() const { return threads * cuts; }
    int FirstOf(int lane) const { return std::min(lane, threads) * cuts; }
  };

  static int MostParts(const Schedule& schedule) {
    int parts = 1;
    for (const Task& task : schedule.tasks) parts = std::max(parts, task.parts * task.cuts);
    return parts;
  }

  // What a thread throws ends the run.
  template <typename Body>
  void Try(const Body& body) {
    try {
      body();
    } catch (...) {
      failure_.Note();
      over_ = true;
      Wake();
    }
  }

  // A helper may come when the caller is gone. It finds no part to take then, and touches nothing of the caller's.
  void GoThrough(int lane) {
    for (std::int64_t round = 0; !over_.load(std::memory_order_relaxed); ++round) {
      // Others have gone on without a thread that was not there, here or before it came.
      if (!has_thread_[lane].load(std::memory_order_relaxed)) {
        has_thread_[lane].store(true, std::memory_order_relaxed);
        round = std::max(round, FirstOpen());
      }
      if (round >= num_rounds_ || (lane > 0 && sleeps_much_.load(std::memory_order_relaxed))) break;
      const Shares& shares = shares_[round % num_tasks_];
      TryParts(lane, lane, round, shares);
      if (!IsDone(round, shares.parts())) WaitFor(lane, round, shares);
    }
    has_thread_[lane].store(false, std::memory_order_relaxed);
  }

  // All rounds that some part has ended are over, but for the last of them.
  std::int64_t FirstOpen() const {
    std::int64_t max_done = 1;
    for (const Part& part : parts_) max_done = std::max(max_done, part.done.load());
    return max_done - 1;
  }

  bool IsDone(std::int64_t round, int parts) const {
    bool is_done = true;
    for (int p = 0; p < parts; ++p) is_done &= parts_[p].done.load() > round;
    return is_done;
  }

  // False where somebody has taken it.
  bool TryPart(int lane, int p, std::int64_t round) {
    Part& part = parts_[p];
    std::int64_t begun = part.begun.load(std::memory_order_relaxed);
    do {
      if (begun > round) return false;
    } while (!part.begun.compare_exchange_weak(begun, round + 1));
    Try([&] {
      CheckCancelled();
      RunPart(p, round, context_.lanes[lane]);
    });
    part.done = round + 1;
    if (sleepers_ > 0) Wake();  // who sleeps has looked at `done` after it was counted
    return true;
  }

  // Takes the parts of `owner` that nobody has taken, and returns whether these were all, if there are any. Others than
  // the owner begin at the other end, so that it finds what it comes to next.
  bool TryParts(int lane, int owner, std::int64_t round, const Shares& shares) {
    const int first = shares.FirstOf(owner), count = shares.FirstOf(owner + 1) - first;
    const bool from_last = count > 1 && ReadsFromLast(begin_ + round / num_tasks_) != (lane != owner);
    bool takes_all = count > 0;
    for (int i = 0; i < count; ++i) takes_all &= TryPart(lane, first + (from_last ? count - 1 - i : i), round);
    return takes_all;
  }

  void RunPart(int p, std::int64_t round, RunContext& context) {
    const Task& task = schedule_.tasks[round % num_tasks_];
    if (schedule_.sharing == Sharing::kBatch) {
      const InstructionPart part{.part = p, .parts = task.parts, .of_batch = true};
      return RunSerially(state_, stage_, begin_, end_, context, part);
    }
    const std::int64_t step = begin_ + round / num_tasks_;
    const InstructionPart part{.part = p, .parts = task.parts * task.cuts, .units = task.units};
    for (const int i : task.instructions) state_.RunInstruction(i, step, context, part);
  }

  // Returns when the round or the run is over. Meanwhile it takes the parts of those who are not there at once, and
  // those of others when they do not come for long: whoever had not begun by then is not there until it comes again, as
  // a thread whose core another program has. Else each round would wait for it as long.
  void WaitFor(int lane, std::int64_t round, const Shares& shares) {
    const int parts = shares.parts();
    const auto is_over = [&] { return IsDone(round, parts) || over_.load(std::memory_order_relaxed); };
    const auto help = [&](bool all) {
      for (int k = 1; k < num_threads_; ++k) {  // each begins with another one
        const int owner = (lane + k) % num_threads_;
        if (!all && has_thread_[owner].load(std::memory_order_relaxed)) continue;
        const bool takes_all = TryParts(lane, owner, round, shares);
        if (all && takes_all) has_thread_[owner].store(false, std::memory_order_relaxed);
      }
    };
    help(/*all=*/shares.cuts > 1);
    std::optional<ObservedScope> waits;
    const auto watch = [&] {
      if (is_watched_) waits.emplace(context_.lanes[lane].observers, state_.LoopEvent(RunEventKind::kWait));
    };
    watch();
    const auto end = std::chrono::steady_clock::now() + look_out_;
    for (int looks = 1; !is_over(); ++looks) {
      RelaxProcessor();
      if (looks % kCpuTarget.looks_of_clock != 0) continue;
      if (std::chrono::steady_clock::now() < end) continue;
      waits.reset();
      help(/*all=*/true);
      watch();
      Sleep(is_over);
      // Who has no part sleeps in any case.
      if (shares.threads == num_threads_) CountSleep(end);
    }
  }

  // A thread has slept until now, for others who have a part of the round as it had.
  void CountSleep(std::chrono::steady_clock::time_point since) {
    using Microseconds = std::chrono::duration<double, std::micro>;
    const auto now = std::chrono::steady_clock::now();
    const auto slept = static_cast<std::int64_t>(Microseconds(now - since).count());
    const std::int64_t all = slept_us_.fetch_add(slept, std::memory_order_relaxed) + slept;
    const double elapsed = Microseconds(now - begun_).count();
    const double awake = static_cast<double>(num_threads_) - static_cast<double>(all) / elapsed;
    if (++num_sleeps_ >= min_sleeps_ && awake < min_awake_) sleeps_much_ = true;
  }

  template <typename IsOver>
  void Sleep(const IsOver& is_over) {
    ++sleepers_;
    const std::uint32_t seen = signal_;
    if (!is_over()) signal_.wait(seen);
    --sleepers_;
  }

  void Wake() {
    ++signal_;
    signal_.notify_all();
  }

  // The caller's end of a run that has failed: nobody takes a part any more, and those that were taken are waited for.
  void StopParts() {
    for (Part& part : parts_) {
      const std::int64_t begun = part.begun.exchange(kNeverMore);
      if (begun == kNeverMore) continue;
      while (part.done < begun) Sleep([&] { return part.done >= begun; });
    }
  }

  // Observers are the caller's, so it waits for all that tell them something.
  bool Enter() {
    const std::lock_guard lock(watched_mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void Leave() {
    const std::lock_guard lock(watched_mutex_);
    --inside_;
    Wake();
  }
  void WaitForWatched() {
    if (!is_watched_) return;
    const ObservedScope scope(context_.observers, state_.LoopEvent(RunEventKind::kWait));
    const auto is_empty = [&] {
      const std::lock_guard lock(watched_mutex_);
      closed_ = true;
      return inside_ == 0;
    };
    while (!is_empty()) {
      Wake();
      Sleep(is_empty);
    }
  }

  RunState& state_;
  const Stage& stage_;
  const Schedule& schedule_;
  RunContext& context_;
  const bool is_watched_;  // by observers
  // What the target says: helpers that come late read it when the caller and its plan are gone.
  const std::chrono::microseconds look_out_;
  const int min_sleeps_;
  const double min_awake_;  // threads
  const std::int64_t num_tasks_;
  const std::int64_t begin_;  // steps [begin, end)
  const std::int64_t end_;
  const std::int64_t num_rounds_;
  const int num_threads_;
  std::vector<Shares> shares_;  // by task
  std::vector<Part> parts_;
  std::vector<std::atomic<bool>> has_thread_;  // by lane
  FirstFailure failure_;
  std::atomic<bool> over_ = false;         // it has failed
  std::atomic<int> sleepers_ = 0;          // read by all, changed rarely
  std::atomic<std::uint32_t> signal_ = 0;  // changes when a sleeper has something to look at
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> slept_us_ = 0;  // all threads together
  std::atomic<int> num_sleeps_ = 0;
  std::atomic<bool> sleeps_much_ = false;
  std::mutex watched_mutex_;
  int inside_ = 0;       // helpers
  bool closed_ = false;  // to helpers
};

}  // namespace

void RunInLockstep(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, const Schedule& schedule,
                   RunContext& context) {
  context.PrepareLanes(schedule.threads);
  if (schedule.sharing == Sharing::kBatch) state.CutBatch(schedule.tasks.front().parts);
  const auto run = std::make_shared<LockstepRun>(state, stage, begin, end, schedule, context);
  ThreadPool::Process().Run(run, schedule.threads - 1);
  run->Check();
}

}  // namespace stepnet
