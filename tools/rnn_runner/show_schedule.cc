#include "stepnet/tools/rnn_runner/show_schedule.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "stepnet/compiler/schedule_text.h"
#include "stepnet/compiler/simulation.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/gradients.h"
#include "stepnet/tools/rnn_runner/measured_plans.h"
#include "stepnet/tools/rnn_runner/net_plans.h"
#include "stepnet/tools/rnn_runner/run_recorder.h"
#include "stepnet/tools/rnn_runner/run_stats.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

DEFINE_bool(schedule, false, "instead of the net, when instructions of its step nets may run, and why not sooner");
DEFINE_int32(simulate, 0, "with --schedule: how long a run would take on 1 … N threads, from times of a run here");

namespace stepnet::runner {
namespace {

// Microseconds a step, in a run of a hundred with the schedules that the executor would choose.
double SimulatedStep(StepPlan plan, int threads, const std::vector<double>& costs) {
  constexpr std::int64_t kSteps = 100;
  AddSchedules(threads, &plan);
  SetCosts(costs, &plan);
  return SimulatePlan(plan, kSteps, plan.target->measured_scheduling) / kSteps;
}

// `alone` is of runs on one thread, `shared` of those on two: each has less of caches and memory then.
void PrintSimulation(const StepPlan& plan, const MeasuredPlan& alone, const MeasuredPlan& shared) {
  Table table({"threads", "us a step", "faster", "busy", "measured"});
  const double serial = SimulatedStep(plan, 1, alone.costs);
  for (int threads = 1; threads <= FLAGS_simulate; threads = threads < 4 ? threads + 1 : 2 * threads) {
    const double step = threads == 1 ? serial : SimulatedStep(plan, threads, shared.costs);
    const double measured = threads == 1 ? alone.step : threads == 2 ? shared.step : 0;
    table.Add({StrCat(threads), Number(step, 3), StrCat(Number(serial / step, 3), "x"),
               StrCat(Number(100 * std::min(1.0, serial / (step * threads)), 3), "%"),
               measured > 0 ? Number(measured, 3) : ""});
  }
  std::cout << Printable(table.Text());
}

}  // namespace

std::vector<FlagUse> ScheduleFlags() {
  constexpr std::string_view kOthers[] = {"net", "executor", "cuda_graph", "max_device_memory", "math"};
  std::vector<FlagUse> flags = {
      {.name = "schedule"}, {.name = "simulate", .value = "N", .min = 0, .max = kMaxThreads}, LossFlag()};
  for (FlagUse& flag : SessionFlags()) {
    if (std::ranges::find(kOthers, flag.name) == std::end(kOthers)) flags.push_back(std::move(flag));
  }
  return flags;
}

int ShowSchedules(const std::string& path) {
  CheckFormat({"text", "dot"});
  FLAGS_net = path;
  const Device device = DeviceNamedByFlags();
  if (!device.IsHost() && FLAGS_simulate > 0) {
    throw UsageError(StrCat("--simulate is of threads, and --device=", device, " has none"));
  }
  std::mutex mutex;
  std::vector<StepPlan> plans;
  RunOptions options = RunOptionsOn(device);
  options.on_plan = [&, dump = options.on_plan](const StepPlan& plan) {
    if (dump) dump(plan);
    const std::lock_guard lock(mutex);
    plans.push_back(plan);
  };
  Session session = MakePlans(options);
  if (plans.empty()) throw Error(ErrorCode::kInvalidNet, "the net runs no step net").At({.file = path});
  std::vector<MeasuredPlan> alone, shared;
  if (FLAGS_simulate > 0) {
    alone = MeasurePlans(session, 1, plans);
    shared = MeasurePlans(session, 2, plans);
  }
  for (size_t p = 0; p < plans.size(); ++p) {
    AddSchedules(options.threads, &plans[p]);
    std::cout << Printable(FLAGS_format == "dot" ? ScheduleDot(plans[p]) : ScheduleText(plans[p]));
    if (FLAGS_simulate > 0) PrintSimulation(plans[p], alone[p], shared[p]);
  }
  return kOk;
}

}  // namespace stepnet::runner
