#include "stepnet/compiler/longest_chain.h"

#include <algorithm>
#include <utility>

namespace stepnet {

std::vector<Finish> FinishesOf(const Schedule& schedule, size_t steps) {
  const size_t num_tasks = schedule.tasks.size();
  std::vector<Finish> finishes(steps * num_tasks);
  for (size_t k = 0; k < steps; ++k) {
    for (size_t i = 0; i < num_tasks; ++i) {  // edges within a step lead to later tasks
      const Task& task = schedule.tasks[i];
      Finish& finish = finishes[k * num_tasks + i];
      finish.microseconds += task.microseconds / task.parts;
      for (const Task::Successor& next : task.successors) {
        if (k + next.delta >= steps) continue;
        Finish& later = finishes[(k + next.delta) * num_tasks + next.task];
        if (later.task >= 0 && later.microseconds >= finish.microseconds) continue;
        later = {.microseconds = finish.microseconds, .task = static_cast<int>(i), .delta = next.delta};
      }
    }
  }
  return finishes;
}

std::vector<ChainLink> LongestChain(const Schedule& schedule) {
  const size_t num_tasks = schedule.tasks.size();
  if (num_tasks == 0) return {};
  // In so many steps a chain through all of them meets one task twice; longer ones are not looked for.
  constexpr size_t kMaxSteps = 64;
  const size_t steps = std::min(num_tasks * static_cast<size_t>(schedule.dependencies.max_delta) + 1, kMaxSteps);
  const std::vector<Finish> finishes = FinishesOf(schedule, steps);
  // Backward from the last to finish, until a task is met again.
  const auto last = finishes.end() - static_cast<std::ptrdiff_t>(num_tasks);
  int at = static_cast<int>(std::ranges::max_element(last, finishes.end(), {}, &Finish::microseconds) - last);
  size_t step = steps - 1;
  std::vector<std::pair<int, int>> chain;  // task, and steps after the one that it waited for
  std::vector<int> position(num_tasks, -1);
  size_t begin = 0;
  while (at >= 0 && position[at] < 0) {
    const Finish& finish = finishes[step * num_tasks + at];
    position[at] = static_cast<int>(chain.size());
    chain.emplace_back(at, finish.delta);
    at = finish.task;
    step -= finish.delta;
  }
  if (at >= 0) begin = position[at];
  std::vector<ChainLink> links;
  for (size_t i = chain.size(); i-- > begin;) {
    int delta = chain[i].second;  // of the first instruction; the others follow in the same step
    for (const int instruction : schedule.tasks[chain[i].first].instructions) {
      links.push_back({.instruction = instruction, .delta = std::exchange(delta, 0)});
    }
  }
  return links;
}

}  // namespace stepnet
