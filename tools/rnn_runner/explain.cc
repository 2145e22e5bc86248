// rnn_runner explain: what the compiler has made of the step nets of a net.
#include <gflags/gflags.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>

#include "stepnet/core/strings.h"
#include "stepnet/report/explanation.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/gradients.h"
#include "stepnet/tools/rnn_runner/measured_plans.h"
#include "stepnet/tools/rnn_runner/net_plans.h"
#include "stepnet/tools/rnn_runner/run_stats.h"

DEFINE_bool(measure, false,
            "run the net some times, and say how long each instruction took, and what the machine can do at most");

namespace stepnet::runner {
namespace {

const std::vector<std::string> kFormats = {"text", "json", "html"};

void Print(const std::vector<Explanation>& explanations) {
  if (FLAGS_format == "html") {
    std::cout << ExplanationsHtml(StrCat("What the compiler has made of ", FLAGS_net), explanations);
  } else {
    std::cout << (FLAGS_format == "json" ? ExplanationsJson(explanations) : ExplanationsText(explanations));
  }
}

// Steps of the run of the plan; nothing where nobody has said how many it has: those of a cell's inputs that are made
// up are an example.
std::optional<std::int64_t> StepsOf(const StepPlan& plan, const RunStats& stats, const Session& session) {
  constexpr const char* kFlags[] = {"steps", "shape", "input", "input_pb"};
  if (!session.made_up.empty() && std::ranges::none_of(kFlags, IsGiven)) return {};
  for (const NetStats& of : stats.Nets()) {
    if (of.plan != nullptr && of.backward == plan.backward && of.net == plan.name) return of.max_steps;
  }
  return {};
}

// Those of the run, without others that would have needed more memory than there is.
std::vector<MadePlan> PlansOf(const MadePlans& made, const RunStats& stats) {
  std::set<std::uint64_t> numbers;
  for (const NetStats& of : stats.Nets()) {
    if (of.plan != nullptr) numbers.insert(of.plan->number);
  }
  std::vector<MadePlan> plans = made.plans();
  const auto has_run = [&](const MadePlan& of) { return numbers.contains(of.plan.number); };
  if (std::ranges::any_of(plans, has_run)) std::erase_if(plans, std::not_fn(has_run));
  return plans;
}

int ExplainNet(const std::vector<std::string>& operands) {
  CheckFormat(kFormats);
  FLAGS_net = operands.front();
  const Device device = DeviceNamedByFlags();
  if (FLAGS_measure && !device.IsHost()) {
    throw UsageError(StrCat("--measure runs on the CPU alone; bench --stats has times of instructions on ", device));
  }
  MadePlans made;
  RunOptions options = RunOptionsOn(device);
  made.Watch(&options);
  RunStats stats;
  Session session = MakePlans(options, &stats);
  const std::vector<MadePlan> made_plans = PlansOf(made, stats);
  if (made_plans.empty()) throw Error(ErrorCode::kInvalidNet, "the net runs no step net").At({.file = FLAGS_net});
  std::vector<Explanation> explanations;
  if (FLAGS_measure) {
    std::vector<StepPlan> plans;
    for (const MadePlan& of : made_plans) plans.push_back(of.plan);
    const std::vector<MeasuredPlan> measured = MeasurePlans(session, options.threads, plans);
    const MachineLimits limits = MeasureMachineLimits();
    for (size_t p = 0; p < made_plans.size(); ++p) {
      const MeasuredPlan& plan = measured[p];
      Measured of_plan{.num_steps = plan.num_steps, .limits = limits};
      for (size_t i = 0; i < plan.costs.size(); ++i) {
        of_plan.microseconds.push_back(plan.have_run[i] ? std::optional(plan.costs[i]) : std::nullopt);
      }
      explanations.push_back(Explain(made_plans[p], plan.num_steps, &of_plan));
    }
  } else {
    for (const MadePlan& of : made_plans) {
      explanations.push_back(Explain(of, StepsOf(of.plan, stats, session), nullptr));
    }
  }
  Print(explanations);
  return kOk;
}

std::vector<FlagUse> ExplainFlags() {
  constexpr std::string_view kOthers[] = {"net", "executor", "cuda_graph", "max_device_memory", "math"};
  std::vector<FlagUse> flags = {
      FormatFlag(kFormats, "how to print; html is a page that needs nothing else"), {.name = "measure"}, LossFlag()};
  for (FlagUse& flag : SessionFlags()) {
    if (std::ranges::find(kOthers, flag.name) == std::end(kOthers)) flags.push_back(std::move(flag));
  }
  return WithCommonFlags(std::move(flags));
}

}  // namespace

const Command kExplain = {
    .name = "explain",
    .operands = "F",
    .doc = "says what the compiler has made of the step nets of a net",
    .details =
        "F is a NetDef, a MetaNetDef, a minidb model or a cell, binary or text. For each step net: what runs for\n"
        "many steps at once and why, what has become one, as formulas, and what has not, what lies in which\n"
        "memory, how it is cut up for threads, and how long each instruction takes, by estimate or measured.\n"
        "The net is run once, so it takes the inputs that `run` takes.",
    .example = "rnn_runner explain lstm.cell --size=H=256,D=256 --batch=32 --steps=100 --loss=h --measure",
    .flags = ExplainFlags(),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = AdviceOnOptions,
    .run = ExplainNet,
};

}  // namespace stepnet::runner
