// The rules for the steps of a plan.
#include <set>

#include "stepnet/core/strings.h"
#include "stepnet/nets/execution_plan.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::int64_t kMaxThreads = 1024;  // of one step

class PlanChecker {
 public:
  std::vector<std::string> Run(const PlanDef& plan) {
    for (const NetDef& net : plan.network()) {
      if (!nets_.insert(net.name()).second) Report("", StrCat("two nets are named \"", net.name(), "\""));
    }
    for (int i = 0; i < plan.execution_step_size(); ++i) {
      CheckStep(plan.execution_step(i), NameOf(plan.execution_step(i), i), 1);
    }
    return std::move(problems_);
  }

 private:
  static std::string NameOf(const ExecutionStep& step, int i) {
    return step.name().empty() ? StrCat("#", i) : step.name();
  }

  void CheckStep(const ExecutionStep& step, const std::string& path, int depth) {
    if (depth > kMaxNesting) return Report(path, StrCat("steps nest deeper than ", kMaxNesting));
    for (const std::string& net : step.network()) CheckNetName(path, net);
    if (step.network_size() > 0 && step.substep_size() > 0) {
      Report(path, "has networks and substeps, can have only one of the two");
    }
    CheckLoop(step, path);
    CheckReports(step, path);
    CheckThreads(step, path);
    for (int i = 0; i < step.substep_size(); ++i) {
      CheckStep(step.substep(i), StrCat(path, "/", NameOf(step.substep(i), i)), depth + 1);
    }
  }

  void CheckLoop(const ExecutionStep& step, const std::string& path) {
    if (step.num_iter() < 0) Report(path, StrCat("num_iter is ", step.num_iter(), ", must be at least 0"));
    if (step.has_should_stop_blob() && step.has_num_iter()) {
      Report(path, "has num_iter and should_stop_blob, can have only one of the two");
    }
    if (step.has_only_once() && !step.has_should_stop_blob()) Report(path, "has only_once without should_stop_blob");
    if (step.has_criteria_network()) {
      Report(path, "has criteria_network, which is not supported; use should_stop_blob");
    }
  }

  void CheckReports(const ExecutionStep& step, const std::string& path) {
    if (step.has_report_net()) {
      CheckNetName(path, step.report_net());
      if (step.report_interval() < 1) {
        Report(path, StrCat("report_interval is ", step.report_interval(), " seconds, must be at least 1"));
      }
    }
    if (step.has_run_every_ms() && step.run_every_ms() < 1) {
      Report(path, StrCat("run_every_ms is ", step.run_every_ms(), ", must be at least 1"));
    }
  }

  void CheckThreads(const ExecutionStep& step, const std::string& path) {
    const std::int64_t instances = step.has_num_concurrent_instances() ? step.num_concurrent_instances() : 1;
    if (instances < 1) Report(path, StrCat("num_concurrent_instances is ", instances, ", must be at least 1"));
    const bool concurrent = step.concurrent_substeps() || instances > 1;
    const std::int64_t threads = instances * step.substep_size();
    if (concurrent && threads > kMaxThreads) {
      Report(path, StrCat("runs ", threads, " substeps at the same time; ", kMaxThreads, " are supported"));
    }
  }

  void CheckNetName(const std::string& path, const std::string& net) {
    if (nets_.contains(net)) return;
    // The first few problems are what people read; to look for names for all would take long in a hostile plan.
    constexpr size_t kSuggestions = 20;
    const bool suggest = problems_.size() < kSuggestions;
    Report(path,
           StrCat("the plan has no net \"", net, "\"", suggest ? DidYouMean(net, {nets_.begin(), nets_.end()}) : ""));
  }

  void Report(const std::string& path, const std::string& problem) {
    problems_.push_back(path.empty() ? problem : StrCat("step \"", path, "\": ", problem));
  }

  std::set<std::string> nets_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> CheckExecutionPlan(const PlanDef& plan) { return PlanChecker().Run(plan); }

}  // namespace stepnet
