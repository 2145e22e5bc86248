#include "stepnet/compiler/simulation.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

struct Ready {
  std::int64_t step = 0;
  int task = 0;
  int from = -1;  // thread that made it ready; -1: it is handed to any other
};

// What is ready, by when it is due. Heaps hold places in the list; what has left or moved since is passed over.
class ReadyList {
 public:
  explicit ReadyList(const Schedule& schedule) : schedule_(schedule), places_of_(schedule.tasks.size()) {}

  bool empty() const { return ready_.empty(); }
  const Ready& operator[](size_t place) const { return ready_[place]; }

  void Add(const Ready& added) {
    ready_.push_back(added);
    Note(ready_.size() - 1);
  }

  // The place of what a thread takes that had task `last` before; -1: none.
  size_t FirstFor(int last) {
    const auto is_stale = [this](const Place& place) {
      const auto& [due, step, task, at] = place;
      return at >= ready_.size() || ready_[at].step != step || ready_[at].task != task;
    };
    const auto first_of = [&](Heap& heap) {
      while (!heap.empty() && is_stale(heap.top())) heap.pop();
      return heap.empty() ? nullptr : &heap.top();
    };
    const Place* first = first_of(places_);
    const Place* of_last = last >= 0 ? first_of(places_of_[last]) : nullptr;
    if (of_last == nullptr) return std::get<3>(*first);
    const auto& [due, step, task, at] = *of_last;
    return std::get<2>(*first) == last || Place(schedule_.Due(task, step, last), step, task, at) < *first
               ? at
               : std::get<3>(*first);
  }

  Ready Take(size_t place) {
    const Ready taken = std::exchange(ready_[place], ready_.back());
    ready_.pop_back();
    if (place < ready_.size()) Note(place);
    return taken;
  }

 private:
  using Place = std::tuple<double, std::int64_t, int, size_t>;  // when it is due, step, task, place in the list
  using Heap = std::priority_queue<Place, std::vector<Place>, std::greater<>>;

  void Note(size_t at) {
    const Ready& ready = ready_[at];
    const Place place(schedule_.Due(ready.task, ready.step, /*last=*/-1), ready.step, ready.task, at);
    places_.push(place);
    places_of_[ready.task].push(place);
  }

  const Schedule& schedule_;
  std::vector<Ready> ready_;
  Heap places_;
  std::vector<Heap> places_of_;  // of each task
};

// Threads that have nothing to do; whoever has come last is asked first.
class IdleThreads {
 public:
  explicit IdleThreads(int threads) : since_(threads, 0) {
    for (int thread = threads; thread-- > 0;) Add(thread);
  }

  bool empty() const { return num_idle_ == 0; }
  void Add(int thread) {
    since_[thread] = ++now_;
    came_.emplace_back(thread, now_);
    ++num_idle_;
  }
  // `wanted` where it is idle, otherwise any.
  int Take(int wanted) {
    int thread = wanted;
    if (wanted < 0 || since_[wanted] == 0) {
      while (since_[came_.back().first] != came_.back().second) came_.pop_back();
      thread = came_.back().first;
    }
    since_[thread] = 0;
    --num_idle_;
    return thread;
  }

 private:
  std::vector<std::int64_t> since_;  // 0: it is busy
  std::vector<std::pair<int, std::int64_t>> came_;
  std::int64_t now_ = 0;
  int num_idle_ = 0;
};

}  // namespace

namespace {

// Threads that go through all steps together, or each alone.
Simulation InStep(const Schedule& schedule, int threads, std::int64_t runs, double times,
                  const SchedulingCosts& costs) {
  double step = 0, busy = 0;
  for (const Task& task : schedule.tasks) {
    const int rounds = (task.parts + threads - 1) / threads;
    step += times * task.PartMicroseconds() * rounds;
    busy += times * task.microseconds;
    if (schedule.sharing == Sharing::kLockstep && threads > 1) step += costs.round;
  }
  return {.microseconds = step * static_cast<double>(runs), .busy = step > 0 ? busy / (threads * step) : 0};
}

}  // namespace

Simulation Simulate(const Schedule& schedule, int threads, std::int64_t steps, std::int64_t steps_under_way,
                    const SchedulingCosts& costs) {
  // What follows counts steps of the schedule, which take `times` as long.
  const std::int64_t at_once =
      schedule.steps_at_once == kAllSteps ? std::max<std::int64_t>(steps, 1) : schedule.steps_at_once;
  const std::int64_t all = steps;
  steps = (steps + at_once - 1) / at_once;
  const double times = steps == 0 ? 0 : static_cast<double>(all) / static_cast<double>(steps);
  const auto num_tasks = static_cast<std::int64_t>(schedule.tasks.size());
  if (num_tasks == 0 || steps <= 0) return {};
  if (schedule.sharing != Sharing::kTasks) return InStep(schedule, threads, steps, times, costs);
  ReadyList ready(schedule);
  std::vector<int> last(threads, -1);  // task of each thread
  std::vector<int> pending(num_tasks * steps);
  std::vector<std::int64_t> unfinished(steps, num_tasks);
  for (std::int64_t k = 0; k < steps; ++k) {
    for (std::int64_t i = 0; i < num_tasks; ++i) {
      const Task& task = schedule.tasks[i];
      pending[k * num_tasks + i] = task.NumPredecessors(k) + (task.starts_step ? 1 : 0);
    }
  }
  std::vector<int> parts_left(num_tasks * steps);
  const auto release = [&](int task, std::int64_t k, int thread) {
    if (--pending[k * num_tasks + task] > 0) return;
    parts_left[k * num_tasks + task] = schedule.tasks[task].parts;
    for (int part = 0; part < schedule.tasks[task].parts; ++part) {
      ready.Add({.step = k, .task = task, .from = part == 0 ? thread : -1});
    }
  };
  std::int64_t admitted = 0;
  const auto admit = [&](std::int64_t limit, int thread) {
    for (; admitted < std::min(limit, steps); ++admitted) {
      for (std::int64_t i = 0; i < num_tasks; ++i) {
        if (schedule.tasks[i].starts_step) release(static_cast<int>(i), admitted, thread);
      }
    }
  };
  admit(steps_under_way, 0);
  struct Running {
    double until;
    int thread;
    int task;
    std::int64_t step;
    bool operator>(const Running& other) const { return std::tie(until, thread) > std::tie(other.until, other.thread); }
  };
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  IdleThreads idle(threads);
  double now = 0;
  // Threads are given tasks one after the other, from one list, at which the others look meanwhile.
  const double handed_task = costs.handed_task + costs.inline_task * std::max(threads - 2, 0);
  double handed_until = 0;
  double busy = 0;
  std::int64_t oldest = 0;
  while (!ready.empty() || !running.empty()) {
    CheckCancelled();
    while (!ready.empty() && !idle.empty()) {
      // The thread that made the first one ready, if it is free.
      const int thread = idle.Take(ready[ready.FirstFor(-1)].from);
      const Ready next = ready.Take(ready.FirstFor(last[thread]));
      last[thread] = next.task;
      const double cost = times * schedule.tasks[next.task].microseconds / schedule.tasks[next.task].parts;
      busy += cost;
      double start = now + costs.inline_task;
      if (thread != next.from) start = handed_until = std::max(now, handed_until) + handed_task;
      running.push({.until = start + cost, .thread = thread, .task = next.task, .step = next.step});
    }
    const Running done = running.top();
    running.pop();
    now = done.until;
    idle.Add(done.thread);
    if (--parts_left[done.step * num_tasks + done.task] > 0) continue;
    for (const Task::Successor& next : schedule.tasks[done.task].successors) {
      if (done.step + next.delta < steps) release(next.task, done.step + next.delta, done.thread);
    }
    --unfinished[done.step];
    while (oldest < steps && unfinished[oldest] == 0) ++oldest;
    admit(oldest + steps_under_way, done.thread);
  }
  return {.microseconds = now, .busy = now > 0 ? busy / (threads * now) : 0};
}

double SimulatePlan(const StepPlan& plan, std::int64_t steps, const SchedulingCosts& costs,
                    std::optional<int> threads) {
  const auto simulate = [&](const Schedule& schedule, int count, std::int64_t of_steps) {
    const std::int64_t under_way = plan.max_steps > 0 ? plan.max_steps : StepsUnderWay(schedule, count, *plan.target);
    return Simulate(schedule, count, of_steps, under_way, costs).microseconds;
  };
  const auto run = [&](const Schedule& schedule) {
    const int count = threads.value_or(schedule.threads);
    if (count == 1) return schedule.step_microseconds * static_cast<double>(steps);
    const std::int64_t last = count == schedule.threads ? schedule.StepsOfLastPieces(steps) : 0;
    const double time = simulate(schedule, count, steps - last);
    return last == 0 ? time : time + simulate(*schedule.For(last), count, last);
  };
  const Schedule* const of_shorter_runs = plan.pipeline == nullptr ? PipelineFor(steps, plan) : nullptr;
  const Schedule* const pipeline = plan.pipeline != nullptr ? plan.pipeline.get() : of_shorter_runs;
  double sum = pipeline != nullptr ? run(*pipeline) : 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (pipeline != nullptr && plan.stages[s].steps_at_once != kAllSteps) continue;
    const Schedule& schedule = *plan.schedules[s];
    const Schedule* const chosen = schedule.For(steps);
    const bool is_serial = chosen == nullptr && steps < schedule.min_steps && schedule.threads > 1;
    sum += is_serial ? schedule.step_microseconds * static_cast<double>(steps)
                     : run(chosen == nullptr ? schedule : *chosen);
  }
  return sum;
}

double CriticalMicroseconds(const Schedule& schedule, std::int64_t steps_under_way) {
  const int threads = static_cast<int>(schedule.tasks.size() * static_cast<size_t>(steps_under_way));
  const std::int64_t steps = 4 * steps_under_way;
  const SchedulingCosts free{.inline_task = 0, .handed_task = 0};
  return threads == 0 ? 0 : Simulate(schedule, threads, steps, steps_under_way, free).microseconds / steps;
}

}  // namespace stepnet
