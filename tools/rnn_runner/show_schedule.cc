#include "stepnet/tools/rnn_runner/show_schedule.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <mutex>

#include "stepnet/core/net_operator.h"
#include "stepnet/executor/schedule_text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/run_stats.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"
#include "stepnet/tools/rnn_runner/text.h"

DEFINE_bool(schedule, false, "instead of the net, when instructions of its step nets may run, and why not sooner");
DEFINE_int32(simulate, 0, "with --schedule: how long a run would take on 1 … N threads, from times of a run here");

namespace stepnet::runner {
namespace {

constexpr int kMostThreads = 1024;

// Microseconds of each instruction of a plan, a step.
using Costs = std::vector<double>;

// In one run of the net, for each of the plans; what did not run keeps its estimate.
std::vector<Costs> MeasureOnce(Net& net, const std::vector<StepPlan>& plans) {
  std::vector<Costs> costs;
  for (const StepPlan& plan : plans) {
    Costs& of_plan = costs.emplace_back();
    for (const Instruction& instruction : plan.instructions) {
      of_plan.push_back(EstimateMicroseconds(instruction.cost));
    }
  }
  RunStats stats;
  net.AttachObserver(&stats);
  RunNet(net);
  net.DetachObserver(&stats);
  for (const NetStats& measured : stats.Nets()) {
    for (size_t p = 0; p < plans.size(); ++p) {
      const StepPlan& plan = plans[p];
      if (measured.plan == nullptr || plan.backward != measured.backward || plan.name != measured.net) continue;
      for (size_t i = 0; i < std::min(plan.instructions.size(), measured.instructions.size()); ++i) {
        const InstructionStats& instruction = measured.instructions[i];
        if (instruction.calls == 0 || instruction.text != plan.instructions[i].text) continue;
        costs[p][i] = 1e6 * instruction.seconds / static_cast<double>(measured.steps);
      }
    }
  }
  return costs;
}

// The medians of several runs on so many threads, for each of the plans.
std::vector<Costs> Measure(Session& session, int threads, const std::vector<StepPlan>& plans) {
  constexpr std::chrono::seconds kEnough{1};
  constexpr size_t kLeastRuns = 3, kMostRuns = 100;
  RunOptions options = RunOptionsFromFlags();
  options.threads = threads;
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  RunNet(*net);
  std::vector<std::vector<Costs>> runs;
  const auto end = std::chrono::steady_clock::now() + kEnough;
  while (runs.size() < kLeastRuns || (runs.size() < kMostRuns && std::chrono::steady_clock::now() < end)) {
    runs.push_back(MeasureOnce(*net, plans));
  }
  std::vector<Costs> medians = runs.front();
  for (size_t p = 0; p < plans.size(); ++p) {
    for (size_t i = 0; i < medians[p].size(); ++i) {
      Costs of_runs;
      for (const std::vector<Costs>& run : runs) of_runs.push_back(run[p][i]);
      const auto middle = of_runs.begin() + static_cast<std::ptrdiff_t>(of_runs.size() / 2);
      std::ranges::nth_element(of_runs, middle);
      medians[p][i] = *middle;
    }
  }
  return medians;
}

// Microseconds a step, in a run of a hundred with the schedules that the executor would choose.
double SimulatedStep(StepPlan plan, int threads, const Costs& costs) {
  constexpr std::int64_t kSteps = 100;
  AddSchedules(threads, &plan);
  SetCosts(costs, &plan);
  return SimulatePlan(plan, kSteps) / kSteps;
}

// `alone` are times of runs on one thread, `shared` of those on two: each has less of caches and memory then.
void PrintSimulation(const StepPlan& plan, const Costs& alone, const Costs& shared) {
  Table table({"threads", "us a step", "faster", "busy"});
  const double serial = SimulatedStep(plan, 1, alone);
  for (int threads = 1; threads <= FLAGS_simulate; threads = threads < 4 ? threads + 1 : 2 * threads) {
    const double step = threads == 1 ? serial : SimulatedStep(plan, threads, shared);
    table.Add({StrCat(threads), Number(step, 3), StrCat(Number(serial / step, 3), "x"),
               StrCat(Number(100 * std::min(1.0, serial / (step * threads)), 3), "%")});
  }
  std::cout << Printable(table.Text());
}

}  // namespace

std::vector<FlagUse> ScheduleFlags() {
  std::vector<FlagUse> flags = {{.name = "schedule"}, {.name = "simulate", .value = "N"}};
  for (FlagUse& flag : SessionFlags()) {
    if (flag.name != "net" && flag.name != "executor") flags.push_back(std::move(flag));
  }
  return flags;
}

int ShowSchedules(const std::string& path) {
  CheckFormat({"text", "dot"});
  if (FLAGS_simulate < 0 || FLAGS_simulate > kMostThreads) {
    throw UsageError(StrCat("--simulate is ", FLAGS_simulate, ", must be between 0 and ", kMostThreads));
  }
  FLAGS_net = path;
  std::mutex mutex;
  std::vector<StepPlan> plans;
  RunOptions options = RunOptionsFromFlags();
  options.executor = "parallel";
  options.on_plan = [&](const StepPlan& plan) {
    const std::lock_guard lock(mutex);
    plans.push_back(plan);
  };
  Session session = OpenSession(options);
  plans.clear();  // those of the net that fills parameters
  RunNet(*CreateNet(session.def, *session.workspace, options));
  if (plans.empty()) throw Error(ErrorCode::kInvalidNet, "the net runs no step net").At({.file = path});
  std::vector<Costs> alone, shared;
  if (FLAGS_simulate > 0) {
    alone = Measure(session, 1, plans);
    shared = Measure(session, 2, plans);
  }
  for (size_t p = 0; p < plans.size(); ++p) {
    AddSchedules(options.threads, &plans[p]);
    std::cout << Printable(FLAGS_format == "dot" ? ScheduleDot(plans[p]) : ScheduleText(plans[p]));
    if (FLAGS_simulate > 0) PrintSimulation(plans[p], alone[p], shared[p]);
  }
  return kOk;
}

}  // namespace stepnet::runner
