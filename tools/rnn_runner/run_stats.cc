#include "stepnet/tools/rnn_runner/run_stats.h"

#include <algorithm>

#include "stepnet/compiler/simulation.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/progress.h"

namespace stepnet::runner {
namespace {

// A simulation of more of them would say the same.
constexpr std::int64_t kMaxSimulatedSteps = 200;
constexpr std::int64_t kMaxSimulatedThreads = 1024;

int IndexOf(const RunEvent& event) { return event.instruction >= 0 ? event.instruction : event.op_index; }

void AddCall(const RunEvent& event, double seconds, std::vector<InstructionStats>* instructions) {
  const auto index = static_cast<size_t>(IndexOf(event));
  if (instructions->size() <= index) instructions->resize(index + 1);
  InstructionStats& stats = (*instructions)[index];
  if (stats.starts == 0) {
    stats.text = *event.op_text;
    stats.type = *event.op_type;
    stats.op_index = event.op_index;
  }
  ++stats.starts;
  if (event.part == 0) ++stats.calls;
  stats.seconds += seconds;
}

void AddPreparation(double seconds, NetStats* stats) {
  if (stats->preparation == 0) stats->first_preparation = seconds;
  stats->preparation += seconds;
}

// Adds what another thread saw of the same net.
void Merge(const NetStats& from, NetStats* to) {
  if (to->of.empty()) to->of = from.of;
  to->runs += from.runs;
  to->steps += from.steps;
  to->max_steps = std::max(to->max_steps, from.max_steps);
  to->seconds += from.seconds;
  to->host_seconds += from.host_seconds;
  to->preparation += from.preparation;
  if (to->first_preparation == 0) to->first_preparation = from.first_preparation;
  if (to->device.empty()) to->device = from.device;
  to->instructions.resize(std::max(to->instructions.size(), from.instructions.size()));
  for (size_t i = 0; i < from.instructions.size(); ++i) {
    const InstructionStats& more = from.instructions[i];
    InstructionStats& stats = to->instructions[i];
    if (more.starts == 0) continue;
    if (stats.starts == 0) {
      stats = more;
      continue;
    }
    stats.calls += more.calls;
    stats.starts += more.starts;
    stats.seconds += more.seconds;
  }
}

}  // namespace

double NetStats::busy() const {
  double sum = 0;
  for (const InstructionStats& instruction : instructions) sum += instruction.seconds;
  return sum;
}

double NetStats::SecondsOf(const InstructionStats& instruction) const {
  const double of_all = std::max(seconds, busy());
  return of_all > 0 ? instruction.seconds * seconds / of_all : 0;
}

double NetStats::overhead() const {
  double sum = 0;
  for (const ThreadStats& thread : threads) sum += thread.overhead;
  return sum;
}

std::int64_t NetStats::starts() const {
  std::int64_t sum = 0;
  for (const InstructionStats& instruction : instructions) sum += instruction.starts;
  return sum;
}

Parallelism ParallelismOf(const NetStats& stats) {
  StepPlan plan = *stats.plan;
  std::vector<double> microseconds(plan.instructions.size(), 0);
  double work = 0;  // of a step; what is moved around the loop is none
  for (size_t i = 0; i < std::min(stats.instructions.size(), microseconds.size()); ++i) {
    microseconds[i] = 1e6 * stats.instructions[i].seconds / static_cast<double>(stats.steps);
    work += microseconds[i];
  }
  if (!plan.IsScheduled()) AddSchedules(1, &plan);
  SetCosts(microseconds, &plan);
  const std::int64_t steps = std::min(stats.max_steps, kMaxSimulatedSteps);
  constexpr SchedulingCosts kFree{.inline_task = 0, .handed_task = 0};  // overhead is told of on its own
  const auto busy = [&](std::optional<int> threads) {
    const double time = SimulatePlan(plan, steps, kFree, threads);
    return time > 0 ? work * static_cast<double>(steps) / time : 1;
  };
  return {.achieved = stats.seconds > 0 ? stats.busy() / stats.seconds : 0,
          .achievable = busy(std::nullopt),
          .unlimited = busy(kMaxSimulatedThreads)};
}

RunStats::Share& RunStats::ShareOf(const RunEvent& event, Thread* thread) {
  const auto [found, is_new] = thread->shares.try_emplace(event.net);
  Share& share = found->second;
  if (is_new) {
    share.order = next_order_.fetch_add(1);
    share.stats.net = *event.net;
    share.stats.backward = event.backward;
    if (event.plan != nullptr) share.stats.plan = *event.plan;
  }
  return share;
}

void RunStats::Started(const RunEvent& event) {
  Thread& thread = threads_.Mine();
  if (event.kind == RunEventKind::kNet || event.kind == RunEventKind::kLoop) {
    Share& share = ShareOf(event, &thread);
    // The thread that asks for a loop is in an operator; helpers come from nowhere.
    if (event.kind == RunEventKind::kLoop && !thread.open.empty() && share.stats.of.empty()) {
      const Thread::Open& within = thread.open.back();
      share.stats.of = StrCat("op ", within.op_index, " of ", *within.net);
    }
  }
  if (event.kind == RunEventKind::kNet) thread.last_end = nullptr;
  thread.open.push_back({.start = 0, .net = event.net, .op_index = event.op_index});
  if (event.queue != nullptr) thread.open.back().begin = event.queue->MarkTime();
  thread.open.back().start = Now();
}

void RunStats::AddLate(Thread* thread) {
  std::vector<Queue*> queues;
  for (const Late& late : thread->late) {
    if (std::ranges::find(queues, late.queue) == queues.end()) queues.push_back(late.queue);
  }
  for (Queue* queue : queues) queue->Wait();
  for (const Late& late : thread->late) {
    NetStats& stats = late.share->stats;
    if (late.begin == nullptr) {
      stats.seconds += std::max(*late.end, late.host_end) - late.host_begin;
    } else if (late.instruction < 0) {
      stats.seconds += *late.end - *late.begin;
    } else {
      stats.instructions[static_cast<size_t>(late.instruction)].seconds += *late.end - *late.begin;
    }
  }
  thread->late.clear();
}

void RunStats::Stopped(const RunEvent& event) {
  const double now = Now();
  Thread& thread = threads_.Mine();
  if (thread.open.empty()) return;  // started before this looked
  const Thread::Open open = std::move(thread.open.back());
  thread.open.pop_back();
  const double start = open.start;
  Late late{.queue = event.queue, .begin = open.begin};
  Share& share = ShareOf(event, &thread);
  late.share = &share;
  double seconds = now - start;
  if (late.begin != nullptr) {
    late.end = thread.last_end = event.queue->MarkTime();
    thread.last_queue = event.queue;
    if (event.plan != nullptr) share.stats.device = DeviceName(event.queue->device());
    if (event.kind == RunEventKind::kLoop) share.stats.host_seconds += seconds;
    seconds = 0;
  } else if (event.kind == RunEventKind::kNet && thread.last_end != nullptr) {
    late = {.queue = thread.last_queue, .share = &share, .host_begin = start, .host_end = now, .end = thread.last_end};
    seconds = 0;
  }
  switch (event.kind) {
    case RunEventKind::kOperator:
    case RunEventKind::kMove:
      AddCall(event, seconds, &share.stats.instructions);
      if (open.loop != nullptr && late.begin == nullptr) AddPreparation(seconds - open.in_loop, &open.loop->stats);
      late.instruction = IndexOf(event);
      break;
    case RunEventKind::kWait: share.waiting += seconds; break;
    case RunEventKind::kLoop:
      share.inside += seconds;
      if (thread.open.empty()) break;  // a helper
      thread.open.back().loop = &share;
      thread.open.back().in_loop += seconds;
      share.stats.steps += event.num_steps;
      share.stats.max_steps = std::max(share.stats.max_steps, event.num_steps);
      [[fallthrough]];
    case RunEventKind::kNet:
      ++share.stats.runs;
      share.stats.seconds += seconds;
      break;
  }
  if (late.end == nullptr) return;
  thread.late.push_back(std::move(late));
  constexpr size_t kMaxLate = 1 << 16;
  if (thread.late.size() == kMaxLate) AddLate(&thread);
}

std::vector<NetStats> RunStats::Nets() const {
  CheckComplete();
  for (const std::unique_ptr<Thread>& thread : threads_.All()) AddLate(thread.get());
  std::unordered_map<const std::string*, Share> merged;
  std::unordered_map<const std::string*, std::vector<ThreadStats>> threads;
  for (size_t number = 0; number < threads_.All().size(); ++number) {
    for (const auto& [net, share] : threads_.All()[number]->shares) {
      const auto [found, is_new] = merged.try_emplace(net, share);
      if (!is_new) {
        found->second.order = std::min(found->second.order, share.order);
        Merge(share.stats, &found->second.stats);
      }
      if (share.inside == 0) continue;
      const double busy = share.stats.busy();
      threads[net].push_back({.name = ThreadName(number),
                              .starts = share.stats.starts(),
                              .busy = busy,
                              .idle = share.waiting,
                              .overhead = share.inside - share.waiting - busy});
    }
  }
  std::vector<std::pair<int, NetStats>> sorted;
  for (auto& [net, share] : merged) {
    share.stats.threads = threads[net];
    for (ThreadStats& thread : share.stats.threads) {
      // When it was not there it was idle too.
      thread.idle = share.stats.seconds - thread.busy - thread.overhead;
    }
    sorted.emplace_back(share.order, std::move(share.stats));
  }
  std::ranges::sort(sorted, {}, &std::pair<int, NetStats>::first);
  std::vector<NetStats> nets;
  for (auto& [order, stats] : sorted) nets.push_back(std::move(stats));
  return nets;
}

double RunStats::SecondsOfLooking() {
  constexpr int kTimes = 1000;
  const std::string text = "nothing";
  RunStats stats;
  const ObserverList list = {&stats};
  const double start = Now();
  for (int i = 0; i < kTimes; ++i) {
    const ObservedScope scope(
        list, {.kind = RunEventKind::kOperator, .net = &text, .op_index = 0, .op_type = &text, .op_text = &text});
  }
  return (Now() - start - stats.Nets().front().busy()) / kTimes;
}

}  // namespace stepnet::runner
