#include "stepnet/tools/rnn_runner/measured_plans.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "stepnet/core/cost.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/run_recorder.h"
#include "stepnet/tools/rnn_runner/run_stats.h"

namespace stepnet::runner {
namespace {

// How long loops take, without looking at instructions, which would take as long as the short ones do. To be made by
// the thread that runs the net.
class LoopTimes : public RunRecorder {
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

// In one run of the net, for each of the plans.
std::vector<MeasuredPlan> MeasureRun(Net& net, const std::vector<StepPlan>& plans) {
  std::vector<MeasuredPlan> all;
  for (const StepPlan& plan : plans) {
    MeasuredPlan& of_plan = all.emplace_back();
    for (const Instruction& instruction : plan.instructions) {
      of_plan.costs.push_back(EstimateMicroseconds(instruction.cost, *plan.target));
    }
    of_plan.have_run.assign(plan.instructions.size(), false);
  }
  RunStats stats;
  net.AttachObserver(&stats);
  RunNet(net);
  net.DetachObserver(&stats);
  for (const NetStats& measured : stats.Nets()) {
    for (size_t p = 0; p < plans.size(); ++p) {
      const StepPlan& plan = plans[p];
      if (measured.plan == nullptr || plan.backward != measured.backward || plan.name != measured.net) continue;
      all[p].num_steps = measured.max_steps;
      for (size_t i = 0; i < std::min(plan.instructions.size(), measured.instructions.size()); ++i) {
        const InstructionStats& instruction = measured.instructions[i];
        if (instruction.calls == 0 || measured.steps == 0 || instruction.text != plan.instructions[i].text) continue;
        all[p].costs[i] = 1e6 * instruction.seconds / static_cast<double>(measured.steps);
        all[p].have_run[i] = true;
      }
    }
  }
  return all;
}

}  // namespace

std::vector<MeasuredPlan> MeasurePlans(Session& session, int threads, const std::vector<StepPlan>& plans) {
  constexpr std::chrono::seconds kEnough{2};
  constexpr size_t kMinRuns = 5, kMaxRuns = 100;
  RunOptions options = RunOptionsOn({});
  options.quiet = true;
  options.threads = threads;
  options.on_pass = nullptr;  // the plans have been shown
  options.on_plan = nullptr;
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  RunNet(*net);
  std::vector<std::vector<MeasuredPlan>> runs;           // by run, then plan
  std::vector<std::vector<double>> steps(plans.size());  // by plan, then run
  const auto end = std::chrono::steady_clock::now() + kEnough;
  while (runs.size() < kMinRuns || (runs.size() < kMaxRuns && std::chrono::steady_clock::now() < end)) {
    runs.push_back(MeasureRun(*net, plans));
    LoopTimes times;
    net->AttachObserver(&times);
    RunNet(*net);
    net->DetachObserver(&times);
    for (size_t p = 0; p < plans.size(); ++p) steps[p].push_back(times.StepOf(plans[p]));
  }
  std::vector<MeasuredPlan> measured(plans.size());
  for (size_t p = 0; p < plans.size(); ++p) {
    measured[p].step = std::ranges::min(steps[p]);
    measured[p].num_steps = runs.front()[p].num_steps;
    for (size_t i = 0; i < plans[p].instructions.size(); ++i) {
      std::vector<double> of_runs;
      for (const std::vector<MeasuredPlan>& run : runs) of_runs.push_back(run[p].costs[i]);
      measured[p].costs.push_back(std::ranges::min(of_runs));
      measured[p].have_run.push_back(std::ranges::all_of(runs, [&](const auto& run) { return run[p].have_run[i]; }));
    }
  }
  return measured;
}

}  // namespace stepnet::runner
