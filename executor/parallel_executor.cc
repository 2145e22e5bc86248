// The parallel executor: tasks of all steps start as soon as what they wait for is done.
//
// Counters for a window of steps say what each task still waits for. A thread that finishes a task counts its
// successors down, goes on with one that became ready and hands on the others; in a pipeline, whose tasks take longer,
// it goes on with the best of all that are ready. A step is admitted when the oldest unfinished step is near enough, so
// that counters can be used again: nobody waits by asking again and again.
//
// tests/models/parallel_run.pml is ParallelRun as a model that is checked; changes here are made there too.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <mutex>
#include <optional>
#include <tuple>

#include "stepnet/compiler/schedule.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/executor/executor.h"
#include "stepnet/executor/lockstep.h"

namespace stepnet {
namespace {

struct Ready {
  int task = 0;
  std::int64_t step = 0;  // counted from the first one, in the direction of the run
  int part = 0;
};

class ParallelRun : public SharedWork {
 public:
  // `context` is the caller's, with a lane for each thread. Steps are groups of as many as the schedule takes at once,
  // of those of the whole run `num_steps` from the `first` one on.
  ParallelRun(const Schedule& schedule, std::int64_t first, std::int64_t num_steps, RunState& state,
              RunContext& context, std::int64_t under_way)
      : schedule_(schedule),
        state_(state),
        context_(context),
        is_watched_(!context.observers.empty()),
        look_out_(state.plan().target->microseconds_to_look_out),
        first_(first),
        num_steps_(num_steps),
        num_tasks_(static_cast<std::int64_t>(schedule_.tasks.size())),
        under_way_(under_way),
        window_(static_cast<std::int64_t>(std::bit_ceil(
            static_cast<std::uint64_t>(std::min(under_way + schedule_.dependencies.max_delta, num_steps_ + 1))))),
        pending_(window_ * num_tasks_),
        unfinished_(window_),
        parts_left_(window_ * num_tasks_) {
    for (std::int64_t step = 0; step < std::min(window_, num_steps_); ++step) Arm(step);
    const std::lock_guard lock(steps_mutex_);
    AdmitSteps(&queue_);
  }

  // A helper that comes when the run is over finds neither the state nor the caller's context.
  void Join(int lane) override {
    try {
      if (lane == 0) {
        TakePart(lane, context_.lanes[0]);
      } else if (RunContext* const context = Enter(lane)) {
        const Inside inside(this);
        std::optional<ObservedScope> scope;
        if (is_watched_) scope.emplace(context->observers, state_.LoopEvent(RunEventKind::kLoop));
        TakePart(lane, *context);
      }
    } catch (...) {
      Fail();
    }
    if (lane == 0) WaitForOthers();
  }

  // Throws what the first failing instruction threw.
  void Check() { failure_.Rethrow(); }

 private:
  RunContext* Enter(int lane) {
    const std::lock_guard lock(queue_mutex_);
    if (over_) return nullptr;
    ++inside_;
    return &context_.lanes[lane];
  }

  // Counts a helper that has entered, until it leaves.
  class Inside {
   public:
    explicit Inside(ParallelRun* run) : run_(*run) {}
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      const std::lock_guard lock(run_.queue_mutex_);
      --run_.inside_;
      if (run_.is_watched_ && run_.MayCallerLeave()) run_.Wake(/*all=*/true);
    }

   private:
    ParallelRun& run_;
  };

  // What a thread throws ends the run.
  void Fail() {
    const std::lock_guard lock(queue_mutex_);
    failure_.Note();
    End();
  }

  // REQUIRES queue_mutex_. Who is inside without a task looks at nothing but this object, unless observers are told.
  bool MayCallerLeave() const { return over_ && active_ == 0 && (!is_watched_ || inside_ == 0); }

  // The caller's end of a run that is over.
  void WaitForOthers() {
    const ObservedScope scope(context_.observers, state_.LoopEvent(RunEventKind::kWait));
    auto end = std::chrono::steady_clock::now() + look_out_;
    for (;;) {
      std::uint32_t seen = 0;
      {
        const std::lock_guard lock(queue_mutex_);
        if (MayCallerLeave()) return;
        seen = signal_.load(std::memory_order_relaxed);
      }
      AwaitSignal(seen, &end);
    }
  }

  void TakePart(int lane, RunContext& context) {
    Ready next;
    while (Take(lane, context, &next)) {
      try {
        bool has_next = true;
        while (has_next && !over_.load(std::memory_order_relaxed)) {
          RunTask(next, context);
          has_next = Finish(lane, next, &next);
        }
      } catch (...) {
        Fail();
      }
      Rest();
    }
  }

  std::atomic<int>& Pending(int task, std::int64_t step) {
    return pending_[(step & (window_ - 1)) * num_tasks_ + task];
  }

  std::atomic<int>& PartsLeft(int task, std::int64_t step) {
    return parts_left_[(step & (window_ - 1)) * num_tasks_ + task];
  }

  // Prepares the counters of a step that nobody has touched yet.
  void Arm(std::int64_t step) {
    for (int task = 0; task < num_tasks_; ++task) {
      const Task& t = schedule_.tasks[task];
      const int edges = step >= schedule_.dependencies.max_delta ? static_cast<int>(t.predecessor_deltas.size())
                                                                 : t.NumPredecessors(step);
      Pending(task, step).store(edges + (t.starts_step ? 1 : 0), std::memory_order_relaxed);
    }
    unfinished_[step & (window_ - 1)].store(num_tasks_, std::memory_order_relaxed);
  }

  bool CountDown(int task, std::int64_t step) {
    return Pending(task, step).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  void AddReady(int task, std::int64_t step, std::vector<Ready>* ready) {
    const int parts = schedule_.tasks[task].parts;
    if (parts > 1) PartsLeft(task, step).store(parts, std::memory_order_relaxed);
    for (int part = 0; part < parts; ++part) ready->push_back({task, step, part});
  }

  // REQUIRES steps_mutex_.
  void AdmitSteps(std::vector<Ready>* ready) {
    const std::int64_t limit = std::min(oldest_ + under_way_, num_steps_);
    for (; admitted_ < limit; ++admitted_) {
      for (int task = 0; task < num_tasks_; ++task) {
        if (schedule_.tasks[task].starts_step && CountDown(task, admitted_)) AddReady(task, admitted_, ready);
      }
    }
  }

  void RunTask(const Ready& ready, RunContext& context) {
    CheckCancelled();
    const Task& task = schedule_.tasks[ready.task];
    if (task.stage >= 0) {
      const std::int64_t begin = (first_ + ready.step) * schedule_.steps_at_once;
      RunSerially(state_, state_.plan().stages[task.stage], begin, begin + schedule_.steps_at_once, context);
      return;
    }
    for (const int i : task.instructions)
      state_.RunInstruction(i, first_ + ready.step, context, {.part = ready.part, .parts = task.parts});
  }

  // Counts down what waited for the task. True when `next` is what this thread goes on with.
  bool Finish(int lane, const Ready& done, Ready* next) {
    std::vector<Ready>& ready = ReadyOfThread();
    ready.clear();
    const bool is_part = schedule_.tasks[done.task].parts > 1;
    if (is_part && PartsLeft(done.task, done.step).fetch_sub(1, std::memory_order_acq_rel) > 1) return false;
    for (const Task::Successor& successor : schedule_.tasks[done.task].successors) {
      const std::int64_t step = done.step + successor.delta;
      if (step < num_steps_ && CountDown(successor.task, step)) AddReady(successor.task, step, &ready);
    }
    if (unfinished_[done.step & (window_ - 1)].fetch_sub(1, std::memory_order_acq_rel) == 1) FinishStep(&ready);
    if (schedule_.IsPipeline()) return GiveAndTake(lane, done.task, ready, next);
    if (ready.empty()) return false;
    TakeBest(lane, done.task, &ready, next);
    if (!ready.empty()) Give(ready);
    return true;
  }

  // This thread always has the same part of a task, so that its share of the weights stays in its cache.
  void TakeBest(int lane, int last, std::vector<Ready>* ready, Ready* next) const {
    const auto best = std::ranges::min_element(*ready, {}, [&](const Ready& r) {
      return std::tuple(schedule_.Due(r.task, r.step, last), r.step, r.task, r.part != lane, r.part);
    });
    *next = *best;
    *best = ready->back();
    ready->pop_back();
  }

  void FinishStep(std::vector<Ready>* ready) {
    const std::lock_guard lock(steps_mutex_);
    while (oldest_ < num_steps_ && unfinished_[oldest_ & (window_ - 1)].load(std::memory_order_acquire) == 0) {
      if (oldest_ + window_ < num_steps_) Arm(oldest_ + window_);
      ++oldest_;
    }
    AdmitSteps(ready);
    if (oldest_ < num_steps_) return;
    const std::lock_guard queue_lock(queue_mutex_);
    End();
  }

  // REQUIRES queue_mutex_.
  void End() {
    over_.store(true, std::memory_order_release);
    Wake(/*all=*/true);
  }

  void Give(const std::vector<Ready>& ready) {
    const std::lock_guard lock(queue_mutex_);
    queue_.insert(queue_.end(), ready.begin(), ready.end());
    Wake(ready.size() > 1);
  }

  // Goes on with the best of all tasks: those of a pipeline take long enough for looking at them.
  bool GiveAndTake(int lane, int last, const std::vector<Ready>& ready, Ready* next) {
    const std::lock_guard lock(queue_mutex_);
    queue_.insert(queue_.end(), ready.begin(), ready.end());
    if (queue_.empty()) return false;
    TakeBest(lane, last, &queue_, next);
    if (ready.size() > 1) Wake(ready.size() > 2);  // who was told of the task that is taken finds another
    return true;
  }

  // REQUIRES queue_mutex_.
  void Wake(bool all) {
    signal_.fetch_add(1, std::memory_order_release);
    if (sleepers_ == 0) return;
    if (all) {
      signal_.notify_all();
    } else {
      signal_.notify_one();
    }
  }

  // The thread has nothing to go on with.
  void Rest() {
    const std::lock_guard lock(queue_mutex_);
    --active_;
    if (MayCallerLeave()) Wake(/*all=*/true);
  }

  // Waits for a task; false when the run is over.
  bool Take(int lane, const RunContext& context, Ready* next) {
    std::optional<ObservedScope> waits;
    auto end = std::chrono::steady_clock::now() + look_out_;
    for (;;) {
      if (over_.load(std::memory_order_acquire)) return false;
      std::uint32_t seen = 0;
      {
        const std::lock_guard lock(queue_mutex_);
        if (over_) return false;
        if (!queue_.empty()) {
          TakeBest(lane, /*last=*/-1, &queue_, next);
          ++active_;
          return true;
        }
        if (active_ == 0) {
          failure_.Note(std::make_exception_ptr(Stuck()));
          End();
          return false;
        }
        seen = signal_.load(std::memory_order_relaxed);
      }
      if (is_watched_ && !waits) waits.emplace(context.observers, state_.LoopEvent(RunEventKind::kWait));
      AwaitSignal(seen, &end);
    }
  }

  // Looks out for another signal without the lock until `end`, then sleeps until there is one.
  void AwaitSignal(std::uint32_t seen, std::chrono::steady_clock::time_point* end) {
    bool looks_out = true;
    while (looks_out && signal_.load(std::memory_order_acquire) == seen) {
      RelaxProcessor();
      looks_out = std::chrono::steady_clock::now() < *end;
    }
    if (looks_out) return;
    {
      const std::lock_guard lock(queue_mutex_);
      if (signal_.load(std::memory_order_relaxed) != seen) return;
      ++sleepers_;
    }
    signal_.wait(seen, std::memory_order_acquire);
    {
      const std::lock_guard lock(queue_mutex_);
      --sleepers_;
    }
    *end = std::chrono::steady_clock::now() + look_out_;
  }

  // What is left of the oldest step when nothing can start, and what it waits for. Steps before it are done.
  Error Stuck() {
    const auto text_of = [&](int instruction) {
      return StrCat("`", state_.plan().instructions[instruction].text, "`");
    };
    std::vector<std::string> blocked;
    for (int task = 0; task < num_tasks_; ++task) {
      if (Pending(task, oldest_).load() <= 0) continue;
      std::vector<std::string> on;
      for (int other = 0; other < num_tasks_; ++other) {
        const Task& before = schedule_.tasks[other];
        const bool is_awaited = std::ranges::any_of(
            before.successors, [&](const Task::Successor& s) { return s.task == task && s.delta == 0; });
        if (is_awaited && Pending(other, oldest_).load() > 0) on.push_back(text_of(before.instructions.back()));
      }
      if (on.empty()) on.emplace_back("what does not exist");
      blocked.push_back(
          StrCat(text_of(schedule_.tasks[task].instructions.front()), " waits for ", stepnet::Join(on, " and ")));
    }
    return Error(ErrorCode::kInternal, StrCat("the run cannot go on: of step ", first_ + oldest_, " of ",
                                              first_ + num_steps_, ", ", stepnet::Join(blocked, ", ")))
        .At({.net = state_.plan().name});
  }

  static std::vector<Ready>& ReadyOfThread() {
    thread_local std::vector<Ready> ready;
    return ready;
  }

  const Schedule& schedule_;
  RunState& state_;
  RunContext& context_;
  const bool is_watched_;  // by observers
  const std::chrono::microseconds look_out_;
  const std::int64_t first_;
  const std::int64_t num_steps_;
  const std::int64_t num_tasks_;
  const std::int64_t under_way_;
  const std::int64_t window_;  // a power of two
  std::vector<std::atomic<int>> pending_;
  std::vector<std::atomic<std::int64_t>> unfinished_;
  std::vector<std::atomic<int>> parts_left_;

  std::mutex steps_mutex_;     // before queue_mutex_
  std::int64_t oldest_ = 0;    // unfinished step
  std::int64_t admitted_ = 0;  // steps

  std::mutex queue_mutex_;
  std::vector<Ready> queue_;
  int active_ = 0;  // threads that run tasks
  int inside_ = 0;  // helpers
  int sleepers_ = 0;
  FirstFailure failure_;
  std::atomic<bool> over_ = false;
  std::atomic<std::uint32_t> signal_ = 0;  // changes when a sleeper has something to look at
};

class ParallelExecutor : public Executor {
 protected:
  void RunSteps(RunState& state, RunContext& context) const override {
    const StepPlan& plan = state.plan();
    const Schedule* const pipeline = PipelineFor(state.num_steps(), plan);
    const bool overlaps = pipeline != nullptr;
    bool is_pipeline_run = false;
    ForEachTurn(state, [&](size_t s, std::int64_t begin, std::int64_t end) {
      if (!overlaps || plan.stages[s].steps_at_once == kAllSteps) {
        RunStage(state, plan.stages[s], begin, end, *plan.schedules[s], context);
      } else if (!is_pipeline_run) {
        RunTasks(state, *pipeline, 0, state.num_steps(), context);
        is_pipeline_run = true;
      }
    });
  }

 private:
  static void RunStage(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end,
                       const Schedule& schedule, RunContext& context) {
    if (state.NumRunsOf(stage) == 0) return;
    const Schedule* const chosen = schedule.For(state.num_steps());
    if (chosen == nullptr) return RunSerially(state, stage, begin, end, context);
    if (chosen->sharing != Sharing::kTasks) return RunInLockstep(state, stage, begin, end, *chosen, context);
    const std::int64_t last = chosen->StepsOfLastPieces(end - begin);
    RunTasks(state, *chosen, begin, end - last, context);
    if (last > 0) RunTasks(state, *chosen->For(last), end - last, end, context);
  }

  static void RunTasks(RunState& state, const Schedule& schedule, std::int64_t begin, std::int64_t end,
                       RunContext& context) {
    context.PrepareLanes(schedule.threads);
    const std::int64_t at_once = schedule.steps_at_once == kAllSteps ? state.num_steps() : schedule.steps_at_once;
    const std::int64_t first = begin / at_once, num_steps = (end + at_once - 1) / at_once - first;
    const StepPlan& plan = state.plan();
    const std::int64_t max_steps = plan.max_steps;
    const std::int64_t under_way = max_steps > 0 ? max_steps : StepsUnderWay(schedule, schedule.threads, *plan.target);
    const auto run = std::make_shared<ParallelRun>(schedule, first, num_steps, state, context, under_way);
    ThreadPool::Process().Run(run, schedule.threads - 1);
    run->Check();
  }
};

const ExecutorRegistration parallel("parallel", DeviceKind::kCpu, [] { return std::make_shared<ParallelExecutor>(); },
                                    {.uses_threads = true, .follows_schedules = true});

}  // namespace

}  // namespace stepnet
