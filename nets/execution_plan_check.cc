// The rules for the steps of a plan.
#include <algorithm>
#include <set>

#include "stepnet/core/strings.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/nets/execution_plan.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::int64_t kMaxCounted = std::int64_t{1} << 31;

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

  // Returns how many threads the step starts that run at the same time; 0 where that has been reported.
  std::int64_t CheckStep(const ExecutionStep& step, const std::string& path, int depth) {
    if (depth > kMaxNesting) {
      Report(path, StrCat("steps nest deeper than ", kMaxNesting));
      return 0;
    }
    for (const std::string& net : step.network()) CheckNetName(path, net);
    if (step.network_size() > 0 && step.substep_size() > 0) {
      Report(path, "has networks and substeps, can have only one of the two");
    }
    CheckLoop(step, path);
    CheckReports(step, path);
    std::vector<std::int64_t> threads;
    for (int i = 0; i < step.substep_size(); ++i) {
      threads.push_back(CheckStep(step.substep(i), StrCat(path, "/", NameOf(step.substep(i), i)), depth + 1));
    }
    return CheckThreads(step, threads, path);
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

  // `of_substeps` are the threads that each of them starts.
  std::int64_t CheckThreads(const ExecutionStep& step, const std::vector<std::int64_t>& of_substeps,
                            const std::string& path) {
    const std::int64_t instances = step.has_num_concurrent_instances() ? step.num_concurrent_instances() : 1;
    if (instances < 1) Report(path, StrCat("num_concurrent_instances is ", instances, ", must be at least 1"));
    std::int64_t of_reporters = step.has_report_net() ? 1 : 0;
    std::int64_t largest = 0, sum = 0, num_substeps = 0;
    for (size_t i = 0; i < of_substeps.size(); ++i) {
      if (step.substep(static_cast<int>(i)).has_run_every_ms()) {
        of_reporters += 1 + of_substeps[i];
        continue;
      }
      ++num_substeps;
      largest = std::max(largest, of_substeps[i]);
      sum = std::min(sum + 1 + of_substeps[i], kMaxCounted);
    }
    const bool concurrent = (step.concurrent_substeps() && num_substeps > 1) || instances > 1;
    const std::int64_t threads = of_reporters + (concurrent ? instances * sum : largest);
    if (threads <= kMaxThreads) return threads;
    Report(path, StrCat("runs on ", threads, " threads at the same time; ", kMaxThreads, " are supported"));
    return 0;
  }

  void CheckNetName(const std::string& path, const std::string& net) {
    if (nets_.contains(net)) return;
    const bool suggest = problems_.size() < kMaxSuggestions;
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
