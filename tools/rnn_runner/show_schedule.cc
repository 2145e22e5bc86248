#include "stepnet/tools/rnn_runner/show_schedule.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <iostream>
#include <mutex>

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

// The instructions' times in a run on so many threads, in place of estimates.
void Measure(Session& session, int threads, std::vector<StepPlan>* plans) {
  RunOptions options = RunOptionsFromFlags();
  options.threads = threads;
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  RunNet(*net);
  RunStats stats;
  net->AttachObserver(&stats);
  constexpr int kRuns = 3;
  for (int run = 0; run < kRuns; ++run) RunNet(*net);
  net->DetachObserver(&stats);
  for (const NetStats& measured : stats.Nets()) {
    for (StepPlan& plan : *plans) {
      if (measured.plan == nullptr || plan.backward != measured.backward || plan.name != measured.net) continue;
      for (size_t i = 0; i < std::min(plan.instructions.size(), measured.instructions.size()); ++i) {
        const InstructionStats& instruction = measured.instructions[i];
        if (instruction.calls == 0 || instruction.text != plan.instructions[i].text) continue;
        plan.instructions[i].microseconds = 1e6 * instruction.seconds / static_cast<double>(measured.steps);
      }
    }
  }
}

// Microseconds a step, in a run of a hundred.
double SimulatedStep(StepPlan plan, int threads) {
  constexpr std::int64_t kSteps = 100;
  AddSchedules(threads, &plan);
  return SimulatePlan(plan, kSteps) / kSteps;
}

// `alone` has times of a run on one thread, `shared` of one on two: each has less of caches and memory then.
void PrintSimulation(const StepPlan& alone, const StepPlan& shared) {
  Table table({"threads", "us a step", "faster", "busy"});
  const double serial = SimulatedStep(alone, 1);
  for (int threads = 1; threads <= FLAGS_simulate; threads = threads < 4 ? threads + 1 : 2 * threads) {
    const double step = threads == 1 ? serial : SimulatedStep(shared, threads);
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
  std::vector<StepPlan> shared = plans;
  if (FLAGS_simulate > 0) {
    Measure(session, 1, &plans);
    Measure(session, 2, &shared);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    StepPlan& plan = plans[i];
    AddSchedules(options.threads, &plan);
    std::cout << Printable(FLAGS_format == "dot" ? ScheduleDot(plan) : ScheduleText(plan));
    if (FLAGS_simulate > 0) PrintSimulation(plan, shared[i]);
  }
  return kOk;
}

}  // namespace stepnet::runner
