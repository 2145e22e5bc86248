#include "stepnet/compiler/make_step_plan.h"

#include <algorithm>
#include <atomic>

#include "stepnet/compiler/batch_rows.h"
#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/verify_stages.h"
#include "stepnet/core/executor_registry.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {
namespace {

// Chunks that a block has at least for threads to have work in it, where there is memory for that. Without blocks
// nobody asks how many cores there are, which takes a process a tenth of a millisecond to find out.
std::int64_t MinChunks(const RunOptions& options, const StepGraph& graph) {
  if (std::ranges::none_of(graph.homes, &Home::passed)) return 1;
  const std::int64_t threads = options.threads > 0 ? options.threads : NumCores();
  return threads == 1 ? 1 : options.target->min_chunks_of_thread * threads;
}

}  // namespace

StepGraph WithRoundingDecided(StepGraph graph, const RunOptions& options) {
  RunPassesBefore("recompute", options, &graph);
  return graph;
}

StepPlan MakeStepPlan(StepGraph graph, const PlanSettings& settings) {
  std::vector<RecomputedValue> recomputed = settings.recomputed;
  RunPasses(settings.options, &graph, [&](StepGraph* decided) {
    if (!settings.choose_recomputed) return;
    recomputed = settings.choose_recomputed(*decided);
    decided->not_kept = BlobsOf(recomputed);
  });
  const bool follows_schedules = ExecutorPropertiesOf(settings.options).follows_schedules;
  const BlockBounds blocks{.min_chunks = follows_schedules ? MinChunks(settings.options, graph) : 1,
                           .max_steps = settings.max_block_steps};
  StepPlan plan = EmitPlan(graph, {.ring_rows = settings.ring_rows, .blocks = blocks});
  VerifyStages(plan);
  plan.max_steps = settings.max_steps;
  plan.max_queues = settings.max_queues;
  plan.recomputed = std::move(recomputed);
  static std::atomic<std::uint64_t> num_plans = 0;
  plan.number = ++num_plans;
  if (follows_schedules) {
    // Loops that threads share by rows of the batch have operators that can be run on some of them.
    AddSchedules(settings.options.threads, &plan,
                 [&](const Stage& stage) { return TakeBackBatch(graph, stage, &plan); });
  }
  if (settings.options.on_plan) settings.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
