#include "stepnet/compiler/make_step_plan.h"

#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/core/executor_registry.h"

namespace stepnet {

StepPlan MakeStepPlan(StepGraph graph, const StepPlanRequest& request) {
  RunPasses(request.options, &graph);
  StepPlan plan = EmitPlan(graph, {.ring_rows = request.ring_rows});
  plan.max_steps = request.max_steps;
  plan.max_queues = request.max_queues;
  if (ExecutorPropertiesOf(request.options).follows_schedules) AddSchedules(request.options.threads, &plan);
  if (request.options.on_plan) request.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
