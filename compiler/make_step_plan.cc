#include "stepnet/compiler/make_step_plan.h"

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/executor_registry.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {
namespace {

// So many that it does not count that threads end a block with different numbers of them: with a quarter,
// lstm.cell of (B, H, T) = (8, 256, 100) takes 1.1 times as long on two threads.
std::int64_t ChunksOfThreads(const RunOptions& options) {
  const std::int64_t threads = options.threads > 0 ? options.threads : NumCores();
  return threads == 1 ? 1 : 8 * options.target->steps_of_thread * threads;
}

}  // namespace

StepPlan MakeStepPlan(StepGraph graph, const PlanSettings& settings) {
  RunPasses(settings.options, &graph);
  const bool follows_schedules = ExecutorPropertiesOf(settings.options).follows_schedules;
  StepPlan plan = EmitPlan(graph, {.ring_rows = settings.ring_rows,
                                   .min_chunks = follows_schedules ? ChunksOfThreads(settings.options) : 1});
  VerifyStages(plan);
  plan.max_steps = settings.max_steps;
  plan.max_queues = settings.max_queues;
  if (follows_schedules) AddSchedules(settings.options.threads, &plan);
  if (settings.options.on_plan) settings.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
