#include "stepnet/compiler/make_step_plan.h"

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/executor_registry.h"

namespace stepnet {

StepPlan MakeStepPlan(StepGraph graph, const PlanSettings& settings) {
  RunPasses(settings.options, &graph);
  StepPlan plan = EmitPlan(graph, {.ring_rows = settings.ring_rows});
  VerifyStages(plan);
  plan.max_steps = settings.max_steps;
  plan.max_queues = settings.max_queues;
  if (ExecutorPropertiesOf(settings.options).follows_schedules) AddSchedules(settings.options.threads, &plan);
  if (settings.options.on_plan) settings.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
