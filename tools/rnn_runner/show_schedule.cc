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
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/net_plans.h"
#include "stepnet/tools/rnn_runner/recorder.h"
#include "stepnet/tools/rnn_runner/run_stats.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"
#include "stepnet/tools/rnn_runner/text.h"

DEFINE_bool(schedule, false, "instead of the net, when instructions of its step nets may run, and why not sooner");
DEFINE_int32(simulate, 0, "with --schedule: how long a run would take on 1 … N threads, from times of a run here");

namespace stepnet::runner {
namespace {

// How long loops take, without looking at instructions, which would take as long as the short ones do. To be made by
// the thread that runs the net.
class LoopTimes : public Recorder {
 public:
  // Microseconds a step; 0 where none ran.
  double StepOf(const StepPlan& plan) const {
    CheckComplete();
    const auto found = loops_.find({plan.name, plan.backward});
    return found == loops_.end() || found->second.steps == 0 ? 0 : found->second.microseconds / found->second.steps;
  }

 private:
  void Started(const RunEvent& event) override {
    if (IsLoop(event)) starts_.push_back(std::chrono::steady_clock::now());
  }
  void Stopped(const RunEvent& event) override {
    if (!IsLoop(event)) return;
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - starts_.back();
    starts_.pop_back();
    Loops& loops = loops_[{*event.net, event.backward}];
    loops.microseconds += time.count();
    loops.steps += event.num_steps;
  }

  struct Loops {
    double microseconds = 0;
    std::int64_t steps = 0;
  };
  bool IsLoop(const RunEvent& event) const {
    return event.kind == RunEventKind::kLoop && std::this_thread::get_id() == caller_;
  }

  const std::thread::id caller_ = std::this_thread::get_id();
  std::vector<std::chrono::steady_clock::time_point> starts_;
  std::map<std::pair<std::string, bool>, Loops> loops_;  // by net, and whether it is backward
};

// Microseconds of each instruction of a plan, a step.
using Costs = std::vector<double>;

// In one run of the net, for each of the plans; what did not run keeps its estimate.
std::vector<Costs> CostsOfRun(Net& net, const std::vector<StepPlan>& plans) {
  std::vector<Costs> costs;
  for (const StepPlan& plan : plans) {
    Costs& of_plan = costs.emplace_back();
    for (const Instruction& instruction : plan.instructions) {
      of_plan.push_back(EstimateMicroseconds(instruction.cost, *plan.target));
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

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// What was measured of a plan on some number of threads.
struct Measured {
  Costs costs;
  double step = 0;  // microseconds of a step, of all instructions together
};

// The medians of several runs on so many threads, for each of the plans.
std::vector<Measured> Measure(Session& session, int threads, const std::vector<StepPlan>& plans) {
  constexpr std::chrono::seconds kEnough{2};
  constexpr size_t kMinRuns = 5, kMaxRuns = 100;
  RunOptions options = RunOptionsOn({});
  options.quiet = true;
  options.threads = threads;
  options.on_pass = nullptr;  // the plans have been shown
  options.on_plan = nullptr;
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  RunNet(*net);
  std::vector<std::vector<Costs>> costs;                 // by run, then plan
  std::vector<std::vector<double>> steps(plans.size());  // by plan, then run
  const auto end = std::chrono::steady_clock::now() + kEnough;
  while (costs.size() < kMinRuns || (costs.size() < kMaxRuns && std::chrono::steady_clock::now() < end)) {
    costs.push_back(CostsOfRun(*net, plans));
    LoopTimes times;
    net->AttachObserver(&times);
    RunNet(*net);
    net->DetachObserver(&times);
    for (size_t p = 0; p < plans.size(); ++p) steps[p].push_back(times.StepOf(plans[p]));
  }
  std::vector<Measured> measured(plans.size());
  for (size_t p = 0; p < plans.size(); ++p) {
    measured[p].step = Median(steps[p]);
    for (size_t i = 0; i < plans[p].instructions.size(); ++i) {
      std::vector<double> of_runs;
      for (const std::vector<Costs>& run : costs) of_runs.push_back(run[p][i]);
      measured[p].costs.push_back(Median(std::move(of_runs)));
    }
  }
  return measured;
}

// Microseconds a step, in a run of a hundred with the schedules that the executor would choose.
double SimulatedStep(StepPlan plan, int threads, const Costs& costs) {
  constexpr std::int64_t kSteps = 100;
  AddSchedules(threads, &plan);
  SetCosts(costs, &plan);
  return SimulatePlan(plan, kSteps, plan.target->measured_scheduling) / kSteps;
}

// `alone` is of runs on one thread, `shared` of those on two: each has less of caches and memory then.
void PrintSimulation(const StepPlan& plan, const Measured& alone, const Measured& shared) {
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
  std::vector<FlagUse> flags = {{.name = "schedule"}, {.name = "simulate", .value = "N", .min = 0, .max = kMaxThreads}};
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
  std::vector<Measured> alone, shared;
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
