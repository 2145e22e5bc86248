#include "stepnet/compiler/make_step_plan.h"

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/executor_registry.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {
namespace {

// As many as keep the threads busy.
std::int64_t ChunksUnderWay(const RunOptions& options) {
  return options.target->steps_of_thread * (options.threads > 0 ? options.threads : NumCores());
}

}  // namespace

StepPlan MakeStepPlan(StepGraph graph, const PlanSettings& settings) {
  RunPasses(settings.options, &graph);
  const bool follows_schedules = ExecutorPropertiesOf(settings.options).follows_schedules;
  StepPlan plan = EmitPlan(
      graph, {.ring_rows = settings.ring_rows, .min_chunks = follows_schedules ? ChunksUnderWay(settings.options) : 1});
  VerifyStages(plan);
  plan.max_steps = settings.max_steps;
  plan.max_queues = settings.max_queues;
  if (follows_schedules) AddSchedules(settings.options.threads, &plan);
  if (settings.options.on_plan) settings.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
