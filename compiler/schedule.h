// Schedule: a stage of a StepPlan made ready for several threads: chains of instructions as tasks, who waits for whom,
// and what each is likely to cost. Made once with the plan, for any number of steps. In a pipeline tasks are whole
// stages.
//
// A step of a schedule is as many steps of the run as its stage takes at once.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/compiler/dependencies.h"

namespace stepnet {

// Instructions that run one after the other on one thread.
struct Task {
  struct Successor {
    int task = 0;
    int delta = 0;
  };
  std::vector<int> instructions;
  int stage = -1;           // the stage of the plan that the task is, in a pipeline; otherwise -1
  double microseconds = 0;  // estimate, for one step of the run
  double tail = 0;          // microseconds of the longest chain of tasks of its step that begins with this one
  int parts = 1;            // into how many parts, which threads take at the same time, its instruction is cut up
  int cuts = 1;             // in lockstep: into how many a part is cut again, which others take when theirs are done
  std::int64_t units = 0;   // not 0: parts are of so many units, and go through several instructions each
  std::vector<Successor> successors = {};
  std::vector<int> predecessor_deltas = {};  // the delta of each edge that ends here
  bool starts_step = false;                  // the task waits for nothing of its own step

  // Microseconds of the part that takes longest: units are in whole pieces (OpRun::ShareOfUnits).
  double PartMicroseconds() const;
  // How many tasks this one waits for in step `step`: edges from before the first step do not count.
  int NumPredecessors(std::int64_t step) const;
};

// How threads share the work of a stage.
enum class Sharing {
  kTasks,     // each takes a task, or a part of one, that is ready; steps and tasks overlap as dependencies allow it
  kLockstep,  // all go through the tasks of each step in their order, each with its part of every one
  kBatch,     // each takes some rows of the batch through all steps; the schedule has one task
};

struct Schedule {
  Sharing sharing = Sharing::kTasks;
  Dependencies dependencies;
  std::vector<Task> tasks;
  double step_microseconds = 0;  // sum over all tasks
  double pace = 0;               // microseconds from one step to the next on threads without number
  int threads = 1;               // how many a run uses; 1: it is serial
  std::int64_t min_steps = 2;    // runs of fewer are serial: they would end before other threads have come
  std::int64_t steps_at_once = 1;
  std::shared_ptr<const Schedule> of_shorter_runs = {};  // null: they are serial

  // The schedule by which the stage runs for so many steps; null: one thread runs it.
  const Schedule* For(std::int64_t steps) const {
    if (steps < min_steps) return of_shorter_runs == nullptr ? nullptr : of_shorter_runs->For(steps);
    return threads < 2 ? nullptr : this;
  }
  // Where threads take pieces of many steps, each by itself, some are left when all have had as many. Returns how many
  // steps these last pieces of a run of so many have, where a run of them alone (For) has another schedule, by which
  // threads share each piece; otherwise 0.
  std::int64_t StepsOfLastPieces(std::int64_t steps) const;
  bool IsPipeline() const { return !tasks.empty() && tasks.front().stage >= 0; }
  // A thread takes the ready task for which this is least: when it must begin for the run to be as fast as its
  // longest chain, in microseconds of a step of the run (highest level first; Adam, Chandy and Dickson, A comparison of
  // list schedules for parallel processing systems, 1974). Where a step takes longer because there are few threads, the
  // task that the thread had before, `last`, may begin by as much earlier, up to two steps: its weights are in the
  // cache of that core.
  double Due(int task, std::int64_t step, int last) const {
    const double early = task == last ? std::clamp(step_microseconds / threads - pace, 0.0, 2 * pace) : 0;
    return pace * static_cast<double>(step) - tasks[task].tail - early;
  }
};

// How many steps a run on `threads` threads of the target has under way at once, at most.
std::int64_t StepsUnderWay(const Schedule& schedule, int threads, const Target& target);

// An instruction that waits for nothing but another of its step joins the task of that one. With 0 `threads` the
// schedule has as many as are worth having, by simulation, and at most one a core.
Schedule MakeSchedule(const StepPlan& plan, const Stage& stage, int threads);

// Makes the schedule by which stages overlap: each stage is a task for each chunk, without the stages that run once for
// all steps. It uses `threads` threads at most. REQUIRES chunks.
Schedule MakePipeline(const StepPlan& plan, int threads);

// Asked of a stage that threads shall share by rows of the batch. True where some instruction of it cannot be cut so
// after all, and the plan says that by now: its schedule is found again.
using TakesBackBatch = std::function<bool(const Stage&)>;

// Gives each stage its schedule, and the plan a pipeline where overlapping stages are faster than one after the other.
void AddSchedules(int threads, StepPlan* plan, const TakesBackBatch& takes_back_batch = {});

// The pipeline that a run of so many steps follows; null: stages run one after the other.
const Schedule* PipelineFor(std::int64_t steps, const StepPlan& plan);

// The plan with the schedules by which runs of so many steps go.
StepPlan InRunsOf(std::int64_t steps, StepPlan plan);

// The schedules of the plan with the same tasks, where instruction i takes microseconds[i] a step of the run.
void SetCosts(const std::vector<double>& microseconds, StepPlan* plan);

}  // namespace stepnet
