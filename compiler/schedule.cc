#include "stepnet/compiler/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "stepnet/compiler/batch_rows.h"
#include "stepnet/compiler/longest_chain.h"
#include "stepnet/compiler/simulation.h"
#include "stepnet/compiler/unit_parts.h"
#include "stepnet/core/cost.h"
#include "stepnet/core/machine_limits.h"
#include "stepnet/core/op_run.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {
namespace {

// A step, in a run of several.
double SimulatedMicroseconds(const StepPlan& plan, const Schedule& schedule, int threads) {
  constexpr std::int64_t kSteps = 16;  // so many that how a run begins hardly counts
  const std::int64_t steps = schedule.steps_at_once == 1 ? kSteps : kTypicalSteps;
  const SchedulingCosts& costs = plan.target->assumed_scheduling;
  return Simulate(schedule, threads, steps, StepsUnderWay(schedule, threads, *plan.target), costs).microseconds /
         static_cast<double>(steps);
}

// Cuts up instructions that take long enough for what it costs to bring threads together. What runs once has more parts
// than there are threads, so that they end together also where one is slower; in a loop each thread keeps its part.
void Split(const StepPlan& plan, int threads, Schedule* schedule) {
  for (Task& task : schedule->tasks) {
    const int max_parts = plan.instructions[task.instructions.front()].max_parts;
    if (task.instructions.size() > 1 || max_parts < 2) continue;
    const std::int64_t steps = TypicalStepsOf(schedule->steps_at_once);
    const double microseconds = task.microseconds * static_cast<double>(steps);
    task.parts = std::clamp(static_cast<int>(microseconds / plan.target->min_part_microseconds), 1,
                            std::min(max_parts, threads));
    if (schedule->steps_at_once != kAllSteps) continue;
    task.parts = std::clamp(static_cast<int>(microseconds / plan.target->part_microseconds), task.parts, max_parts);
  }
}

// Chains end where an instruction may be cut up: whether that is done is decided later.
bool MayJoin(const StepPlan& plan, int before, int i) {
  return plan.instructions[before].max_parts < 2 && plan.instructions[i].max_parts < 2;
}

}  // namespace

double Task::PartMicroseconds() const {
  if (units == 0) return microseconds / parts;
  const std::int64_t pieces = (units + OpRun::kUnitsOfPart - 1) / OpRun::kUnitsOfPart;
  const std::int64_t longest = (pieces + parts - 1) / parts;
  return microseconds * static_cast<double>(longest) / static_cast<double>(pieces);
}

std::int64_t Schedule::StepsOfLastPieces(std::int64_t steps) const {
  if (sharing != Sharing::kTasks || steps_at_once == 1 || steps_at_once == kAllSteps) return 0;
  const std::int64_t pieces = (steps + steps_at_once - 1) / steps_at_once, last = pieces % threads;
  if (pieces < threads || last == 0) return 0;
  const std::int64_t steps_of_last = steps - (pieces - last) * steps_at_once;
  const Schedule* const of_last = For(steps_of_last);
  return of_last != nullptr && of_last != this && of_last->sharing == Sharing::kTasks ? steps_of_last : 0;
}

int Task::NumPredecessors(std::int64_t step) const {
  return static_cast<int>(std::ranges::count_if(predecessor_deltas, [&](int delta) { return delta <= step; }));
}

std::int64_t StepsUnderWay(const Schedule& schedule, int threads, const Target& target) {
  const std::int64_t steps = std::max(target.min_steps_under_way, target.steps_of_thread * threads);
  return schedule.IsPipeline() ? steps + static_cast<std::int64_t>(schedule.tasks.size()) : steps;  // one more a stage
}

namespace {

void AddInstruction(const StepPlan& plan, int i, Task* task) {
  task->instructions.push_back(i);
  task->microseconds += EstimateMicroseconds(plan.instructions[i].cost, *plan.target);
}

// How long tasks take tells when they are due.
void SetPace(Schedule* schedule) {
  std::vector<Task>& tasks = schedule->tasks;
  for (size_t i = tasks.size(); i-- > 0;) {
    tasks[i].tail = 0;
    for (const Task::Successor& next : tasks[i].successors) {
      if (next.delta == 0) tasks[i].tail = std::max(tasks[i].tail, tasks[next.task].tail);
    }
    tasks[i].tail += tasks[i].microseconds / tasks[i].parts;
  }
  // After so many steps the longest way through a run goes round its slowest cycle.
  constexpr size_t kSteps = 16;
  const std::vector<Finish> finishes = FinishesOf(*schedule, kSteps);
  const auto end = [&](size_t step) {
    double last = 0;
    for (size_t i = 0; i < tasks.size(); ++i) last = std::max(last, finishes[step * tasks.size() + i].microseconds);
    return last;
  };
  schedule->pace = (end(kSteps - 1) - end(kSteps / 2 - 1)) / (kSteps / 2);
}

// The edges between tasks: of those that the dependencies are about, number first + n is in task_of[n].
void Connect(const std::vector<int>& task_of, int first, Schedule* schedule) {
  std::set<std::tuple<int, int, int>> known;
  for (const Dependency& edge : schedule->dependencies.edges) {
    const int from = task_of[edge.from - first];
    const int to = task_of[edge.to - first];
    if ((from == to && edge.delta == 0) || !known.emplace(from, to, edge.delta).second) continue;
    schedule->tasks[from].successors.push_back({.task = to, .delta = edge.delta});
    schedule->tasks[to].predecessor_deltas.push_back(edge.delta);
  }
  for (Task& task : schedule->tasks) {
    task.starts_step = std::ranges::find(task.predecessor_deltas, 0) == task.predecessor_deltas.end();
    schedule->step_microseconds += task.microseconds;
  }
  SetPace(schedule);
}

// The schedule for one number of threads. With `splits` instructions are cut up where that is worth it.
Schedule ScheduleFor(const StepPlan& plan, const Stage& stage, const Dependencies& dependencies, int threads,
                     bool splits) {
  Schedule schedule{.dependencies = dependencies, .threads = threads, .steps_at_once = stage.steps_at_once};
  std::vector<std::vector<const Dependency*>> in_of(stage.end - stage.begin);
  for (const Dependency& edge : schedule.dependencies.edges) in_of[edge.to - stage.begin].push_back(&edge);
  std::vector<int> task_of(stage.end - stage.begin);
  for (int i = stage.begin; i < stage.end; ++i) {
    const std::vector<const Dependency*>& in = in_of[i - stage.begin];
    const bool waits_for_one = in.size() == 1 && in[0]->delta == 0;
    const int before = waits_for_one ? task_of[in[0]->from - stage.begin] : -1;
    int& task = task_of[i - stage.begin];
    if (before >= 0 && schedule.tasks[before].instructions.back() == in[0]->from &&
        (!splits || MayJoin(plan, in[0]->from, i))) {
      task = before;
    } else {
      task = static_cast<int>(schedule.tasks.size());
      schedule.tasks.emplace_back();
    }
    AddInstruction(plan, i, &schedule.tasks[task]);
  }
  if (splits) Split(plan, threads, &schedule);
  Connect(task_of, stage.begin, &schedule);
  return schedule;
}

// Instructions [begin, end), several of which go through the units together, in as many parts as are worth it.
Task TaskInParts(const StepPlan& plan, int begin, int end, int threads) {
  const Instruction& last = plan.instructions[end - 1];
  const bool are_several = end - begin > 1;
  Task task{.units = are_several ? last.units : 0};
  for (int i = begin; i < end; ++i) AddInstruction(plan, i, &task);
  const std::int64_t max_parts = are_several ? last.units / OpRun::kUnitsOfPart : last.max_parts;
  const Target& target = *plan.target;
  const auto worth = static_cast<std::int64_t>(task.microseconds / target.min_lockstep_microseconds);
  std::int64_t parts = std::clamp<std::int64_t>(worth, 1, std::min<std::int64_t>(max_parts, threads));
  // More parts of which one still has as many pieces would end no sooner.
  if (are_several) {
    const std::int64_t longest = (max_parts + parts - 1) / parts;
    parts = (max_parts + longest - 1) / longest;
  }
  if (threads > 1 && parts == threads) {
    const double cuts =
        std::min(static_cast<double>(max_parts), task.microseconds / target.min_cut_microseconds) / threads;
    task.cuts = static_cast<int>(std::clamp(cuts, 1.0, static_cast<double>(target.max_cuts_of_part)));
  }
  task.parts = static_cast<int>(parts);
  return task;
}

// The instructions in their order: products with the region behind them, and those that are not worth cutting,
// together.
Schedule LockstepSchedule(const StepPlan& plan, const Stage& stage, const Dependencies& dependencies, int threads) {
  Schedule schedule{.sharing = Sharing::kLockstep,
                    .dependencies = dependencies,
                    .threads = threads,
                    .steps_at_once = stage.steps_at_once};
  std::vector<Task> tasks;  // from the last one
  for (int end = stage.end; end > stage.begin;) {
    const int begin = BeginOfUnitParts(plan, stage.begin, end - 1);
    tasks.push_back(TaskInParts(plan, begin, end, threads));
    end = begin;
  }
  std::vector<int> task_of(stage.end - stage.begin);
  for (Task& task : std::ranges::reverse_view(tasks)) {
    const bool joins = task.parts == 1 && !schedule.tasks.empty() && schedule.tasks.back().parts == 1;
    if (!joins) schedule.tasks.push_back({.parts = task.parts, .cuts = task.cuts, .units = task.units});
    for (const int i : task.instructions) {
      AddInstruction(plan, i, &schedule.tasks.back());
      task_of[i - stage.begin] = static_cast<int>(schedule.tasks.size()) - 1;
    }
  }
  for (const Task& task : schedule.tasks) {
    const auto is_packed = [&](int i) { return plan.instructions[i].packed.has_value(); };
    // Only with packed weights does a product of several rows go through parts of the units.
    if (task.units > 0 && std::ranges::any_of(task.instructions, is_packed))
      schedule.min_steps = plan.target->min_steps_to_pack;
  }
  Connect(task_of, stage.begin, &schedule);
  return schedule;
}

double BytesOfShared(const Instruction& instruction) {
  double bytes = 0;
  for (const InstructionOperand& input : instruction.inputs) {
    if (!input.has_batch && !input.shape_alone) bytes += static_cast<double>(input.info.size_bytes());
  }
  return std::min(bytes, instruction.cost.bytes);
}

// What a core reads in a microsecond, beside its work, of so many bytes that all cores read.
double BytesPerMicrosecondOfShared(double bytes, const Target& target) {
  if (bytes <= static_cast<double>(SecondCacheBytes(target))) return target.near_bytes_per_microsecond;
  const double far = target.far_bytes_per_microsecond;
  const bool is_beyond_caches = bytes >= static_cast<double>(ThirdCacheBytes()) / 2;  // something else is there, too
  return is_beyond_caches ? far : std::max(far, target.counted_of_shared * SharedBytesPerMicrosecond());
}

// What all rows of the batch share is read by each part, in every step.
double MicrosecondsOfRows(const Instruction& instruction, int parts, double bytes_per_microsecond,
                          const Target& target) {
  const double shared = BytesOfShared(instruction);
  const Cost& cost = instruction.cost;
  const double own =
      EstimateMicroseconds({.flops = cost.flops / parts, .bytes = (cost.bytes - shared) / parts}, target);
  return std::max(own, shared / bytes_per_microsecond);
}

// Nothing where steps mix rows of the batch. Runs that are too short to pack weights round as products do, whose sums
// depend on how many rows there are.
std::optional<Schedule> BatchSchedule(const StepPlan& plan, const Stage& stage, const Dependencies& dependencies,
                                      int threads) {
  const auto parts = static_cast<int>(std::min<std::int64_t>(BatchRowsOf(plan, stage), threads));
  if (parts < 2) return {};
  Schedule schedule{.sharing = Sharing::kBatch,
                    .dependencies = dependencies,
                    .tasks = {{.parts = parts}},
                    .threads = parts,
                    .min_steps = plan.target->min_steps_to_pack,
                    .steps_at_once = stage.steps_at_once};
  const Target& target = *plan.target;
  double shared = 0;
  for (int i = stage.begin; i < stage.end; ++i) shared += BytesOfShared(plan.instructions[i]);
  const double rate = BytesPerMicrosecondOfShared(shared, target);
  Task& task = schedule.tasks.front();
  for (int i = stage.begin; i < stage.end; ++i) {
    task.instructions.push_back(i);
    task.microseconds += parts * MicrosecondsOfRows(plan.instructions[i], parts, rate, target);
  }
  Connect(std::vector<int>(stage.end - stage.begin, 0), stage.begin, &schedule);
  return schedule;
}

bool IsInParts(const Schedule& schedule) {
  return std::ranges::any_of(schedule.tasks, [](const Task& task) { return task.parts > 1; });
}

// Threads take pieces of many steps, each by itself. Runs of so few pieces that several of them, one after the other,
// take less time where threads share each go by that schedule.
void AddScheduleOfFewPieces(const StepPlan& plan, Schedule in_parts, Schedule* schedule) {
  if (!IsInParts(in_parts)) return;
  const double shared = SimulatedMicroseconds(plan, in_parts, in_parts.threads);
  const double few = std::ceil(std::min<double>(schedule->step_microseconds / shared, schedule->threads)) - 1;
  if (few < 1) return;
  schedule->min_steps = std::max(schedule->min_steps, static_cast<std::int64_t>(few) * schedule->steps_at_once + 1);
  schedule->of_shorter_runs = std::make_shared<const Schedule>(std::move(in_parts));
}

// Whichever way of using the threads is the fastest.
Schedule FasterSchedule(const StepPlan& plan, const Stage& stage, const Dependencies& dependencies, int threads) {
  Schedule best = ScheduleFor(plan, stage, dependencies, threads, /*splits=*/false);
  double fastest = SimulatedMicroseconds(plan, best, threads);
  const auto consider = [&](Schedule other, double margin) {
    const double time = SimulatedMicroseconds(plan, other, threads);
    if (time >= margin * fastest) return;
    best = std::move(other);
    fastest = time;
  };
  const auto begin = plan.instructions.begin();
  const bool can_split = std::any_of(begin + stage.begin, begin + stage.end,
                                     [](const Instruction& instruction) { return instruction.max_parts > 1; });
  const bool is_loop = stage.steps_at_once != kAllSteps;
  if (can_split) {
    consider(ScheduleFor(plan, stage, dependencies, threads, /*splits=*/true),
             is_loop ? 1 : plan.target->min_gain_of_whole);
  }
  if (threads < 2 || !is_loop) return best;
  if (stage.steps_at_once > 1) {
    if (!IsInParts(best) && can_split) {
      AddScheduleOfFewPieces(plan, ScheduleFor(plan, stage, dependencies, threads, /*splits=*/true), &best);
    }
    return best;
  }
  const auto of_shorter_runs = std::make_shared<const Schedule>(best);
  const auto consider_in_step = [&](Schedule other) {
    if (other.min_steps > of_shorter_runs->min_steps) other.of_shorter_runs = of_shorter_runs;
    consider(std::move(other), 1);
  };
  if (can_split) consider_in_step(LockstepSchedule(plan, stage, dependencies, threads));
  std::optional<Schedule> of_batch = BatchSchedule(plan, stage, dependencies, threads);
  if (of_batch) consider_in_step(std::move(*of_batch));
  return best;
}

// A schedule, and how many microseconds of a step its threads save; 0 where their number was given.
struct ChosenSchedule {
  Schedule schedule;
  double gain = 0;
};

// The smallest number of threads that is nearly as fast as any other; of many, not every number is tried.
ChosenSchedule ChooseThreads(const StepPlan& plan, const Stage& stage, const Dependencies& dependencies) {
  Schedule best = ScheduleFor(plan, stage, dependencies, 1, /*splits=*/false);
  const double alone = best.step_microseconds;
  // Threads would come too late for all but very long runs, which people rarely make.
  constexpr double kLongRun = 8 * kTypicalSteps;
  const auto comes_too_late = [&](double gain) { return gain * kLongRun < plan.target->microseconds_to_wake; };
  if (comes_too_late(alone)) return {std::move(best), 0};
  const int max_threads = std::min(NumCores(), plan.target->max_threads);
  double fastest = alone;
  for (int count = 2; count <= max_threads;
       count = count < max_threads ? std::min(count + (count + 2) / 3, max_threads) : max_threads + 1) {
    Schedule next = FasterSchedule(plan, stage, dependencies, count);
    const double time = SimulatedMicroseconds(plan, next, count);
    if (time * plan.target->min_gain_of_threads >= fastest) continue;  // also where there is nothing to do
    if (comes_too_late(fastest - time)) continue;
    best = std::move(next);
    fastest = time;
  }
  return {std::move(best), alone - fastest};
}

// The fastest schedule for so many threads or, with 0, for as many as are worth having.
ChosenSchedule ChooseSchedule(const StepPlan& plan, const Stage& stage, int threads,
                              const TakesBackBatch& takes_back_batch) {
  const Dependencies dependencies = FindDependencies(plan, stage);
  const auto choose = [&] {
    return threads > 0 ? ChosenSchedule{FasterSchedule(plan, stage, dependencies, threads)}
                       : ChooseThreads(plan, stage, dependencies);
  };
  ChosenSchedule chosen = choose();
  while (chosen.schedule.sharing == Sharing::kBatch && takes_back_batch && takes_back_batch(stage)) chosen = choose();
  return chosen;
}

// Runs of fewer steps, for which threads would come too late, are serial.
void WaitForThreads(std::int64_t steps_to_come, Schedule* schedule) {
  if (schedule->threads < 2) return;
  schedule->min_steps = std::max(schedule->min_steps, Schedule().min_steps + steps_to_come);
  if (schedule->of_shorter_runs == nullptr) return;
  Schedule shorter = *schedule->of_shorter_runs;
  shorter.min_steps += steps_to_come;
  schedule->of_shorter_runs = std::make_shared<Schedule>(std::move(shorter));
}

}  // namespace

Schedule MakeSchedule(const StepPlan& plan, const Stage& stage, int threads) {
  return ChooseSchedule(plan, stage, threads, {}).schedule;
}

Schedule MakePipeline(const StepPlan& plan, int threads) {
  Schedule pipeline{.dependencies = FindChunkDependencies(plan), .threads = threads, .steps_at_once = plan.chunk_steps};
  std::vector<int> task_of(plan.stages.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    if (stage.steps_at_once == kAllSteps) continue;
    task_of[s] = static_cast<int>(pipeline.tasks.size());
    Task& task = pipeline.tasks.emplace_back();
    task.stage = static_cast<int>(s);
    for (int i = stage.begin; i < stage.end; ++i) AddInstruction(plan, i, &task);
  }
  Connect(task_of, /*first=*/0, &pipeline);
  // It gets as many threads as it can keep busy; costs are estimates, so a stage each is never too many.
  const double busy = pipeline.pace > 0 ? std::ceil(pipeline.step_microseconds / pipeline.pace) : threads;
  const auto useful = std::max(static_cast<double>(pipeline.tasks.size()), busy);
  pipeline.threads = static_cast<int>(std::min<double>(threads, useful));
  return pipeline;
}

namespace {

void SetCosts(const std::vector<double>& microseconds, std::shared_ptr<const Schedule>* schedule) {
  Schedule changed = **schedule;
  changed.step_microseconds = 0;
  for (Task& task : changed.tasks) {
    task.microseconds = 0;
    for (const int i : task.instructions) task.microseconds += microseconds[i];
    changed.step_microseconds += task.microseconds;
  }
  SetPace(&changed);
  if (changed.of_shorter_runs != nullptr) SetCosts(microseconds, &changed.of_shorter_runs);
  *schedule = std::make_shared<Schedule>(std::move(changed));
}

// Whether two stages add to the same sums over the steps: in another order where they overlap than one after the other,
// and sums round in their order.
bool StagesAddToTheSame(const StepPlan& plan) {
  std::map<int, std::vector<std::pair<const Slot*, const Stage*>>> sums;  // by base
  for (const Stage& stage : plan.stages) {
    for (int i = stage.begin; i < stage.end && stage.steps_at_once != kAllSteps; ++i) {
      for (const InstructionOperand& output : plan.instructions[i].outputs) {
        const Slot& slot = plan.slots[output.slot];
        if (!output.added || output.has_rows || slot.row_bytes != 0) continue;
        auto& others = sums[slot.base];
        const auto meets = [&](const auto& other) { return other.second != &stage && ShareBytes(*other.first, slot); };
        if (std::ranges::any_of(others, meets)) return true;
        others.emplace_back(&slot, &stage);
      }
    }
  }
  return false;
}

// The pipeline where it is faster than stages that run one after the other; else null.
// REQUIRES: the plan has none.
std::shared_ptr<const Schedule> FasterPipeline(int threads, StepPlan* plan) {
  const SchedulingCosts& costs = plan->target->assumed_scheduling;
  const double one_after_the_other = SimulatePlan(*plan, kTypicalSteps, costs);
  auto pipeline = std::make_shared<Schedule>(MakePipeline(*plan, threads));
  plan->pipeline = pipeline;
  const double gain = one_after_the_other - SimulatePlan(*plan, kTypicalSteps, costs);
  plan->pipeline = nullptr;
  if (gain <= 0) return nullptr;
  const double steps_to_come = plan->target->microseconds_to_wake * kTypicalSteps / gain;
  pipeline->min_steps = plan->chunk_steps + 1 + static_cast<std::int64_t>(std::min(steps_to_come, 1e9));
  return pipeline;
}

}  // namespace

void AddSchedules(int threads, StepPlan* plan, const TakesBackBatch& takes_back_batch) {
  std::vector<ChosenSchedule> chosen;
  double gain = 0;
  for (const Stage& stage : plan->stages) {
    gain += chosen.emplace_back(ChooseSchedule(*plan, stage, threads, takes_back_batch)).gain;
  }
  plan->schedules.clear();
  for (ChosenSchedule& of_stage : chosen) {
    // Threads that have come for one stage are there for the others, too.
    if (gain > 0)
      WaitForThreads(static_cast<std::int64_t>(plan->target->microseconds_to_wake / gain), &of_stage.schedule);
    plan->schedules.push_back(std::make_shared<Schedule>(std::move(of_stage.schedule)));
  }
  plan->pipeline = plan->pipeline_of_shorter_runs = nullptr;
  if (plan->chunk_steps == 0 || threads == 1 || StagesAddToTheSame(*plan)) return;
  const int max_threads = threads > 0 ? threads : NumCores();
  plan->pipeline = FasterPipeline(max_threads, plan);
  if (plan->pipeline != nullptr) return;
  std::vector<std::shared_ptr<const Schedule>> shorter = plan->schedules;
  for (std::shared_ptr<const Schedule>& schedule : shorter) {
    if (schedule->of_shorter_runs != nullptr) schedule = schedule->of_shorter_runs;
  }
  if (shorter == plan->schedules) return;
  std::swap(shorter, plan->schedules);
  plan->pipeline_of_shorter_runs = FasterPipeline(max_threads, plan);
  std::swap(shorter, plan->schedules);
}

const Schedule* PipelineFor(std::int64_t steps, const StepPlan& plan) {
  const bool is_short = std::ranges::any_of(plan.schedules, [&](const std::shared_ptr<const Schedule>& schedule) {
    return schedule->of_shorter_runs != nullptr && steps < schedule->min_steps;
  });
  const Schedule* const pipeline =
      is_short && plan.pipeline == nullptr ? plan.pipeline_of_shorter_runs.get() : plan.pipeline.get();
  return pipeline != nullptr && steps >= pipeline->min_steps ? pipeline : nullptr;
}

StepPlan InRunsOf(std::int64_t steps, StepPlan plan) {
  const Schedule* const pipeline = PipelineFor(steps, plan);
  plan.pipeline = pipeline == nullptr ? nullptr : std::make_shared<Schedule>(*pipeline);
  for (std::shared_ptr<const Schedule>& schedule : plan.schedules) {
    const Schedule* const chosen = schedule->For(steps);
    Schedule of_run = chosen == nullptr ? *schedule : *chosen;
    if (chosen == nullptr) {
      of_run.sharing = Sharing::kTasks;
      of_run.threads = 1;
      for (Task& task : of_run.tasks) task.parts = task.cuts = 1;
    }
    schedule = std::make_shared<Schedule>(std::move(of_run));
  }
  return plan;
}

void SetCosts(const std::vector<double>& microseconds, StepPlan* plan) {
  for (std::shared_ptr<const Schedule>& schedule : plan->schedules) SetCosts(microseconds, &schedule);
  for (std::shared_ptr<const Schedule>* pipeline : {&plan->pipeline, &plan->pipeline_of_shorter_runs}) {
    if (*pipeline != nullptr) SetCosts(microseconds, pipeline);
  }
}

}  // namespace stepnet
