#include "stepnet/tools/rnn_runner/show_graph.h"

#include <algorithm>
#include <iostream>
#include <mutex>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/core/printable.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/net_plans.h"

namespace stepnet::runner {
namespace {

void CheckPass(const std::string& pass) {
  const std::vector<std::string> names = GraphNames();
  if (std::ranges::find(names, pass) != names.end()) return;
  if (pass == "schedule") throw UsageError("--graph is \"schedule\"; schedules are shown by --schedule");
  throw UsageError(StrCat("--graph is \"", pass, "\", must be one of ", Join(names, ", "), DidYouMean(pass, names)));
}

// For a pass that runs with no net that these options make plans for.
void CheckRuns(const std::string& name, const RunOptions& options) {
  const std::optional<Pass> pass = FindPass(name);
  if (!pass) return;
  if (options.opt_level < pass->opt_level) {
    throw UsageError(StrCat("--graph=", name, ": the pass runs from --opt_level=", pass->opt_level, " on"));
  }
  if (options.disabled_passes.contains(name)) throw UsageError(StrCat("--graph=", name, " is disabled"));
}

}  // namespace

std::vector<std::string> GraphNames() {
  std::vector<std::string> names = {"last", "import"};
  for (const Pass& pass : Passes()) names.emplace_back(pass.name);
  names.emplace_back("plan");
  return names;
}

int ShowGraphs(const std::string& path, const std::string& pass) {
  CheckFormat({"text"});
  CheckPass(pass);
  FLAGS_net = path;
  std::mutex mutex;
  std::vector<std::string> texts;
  const auto note = [&](const std::string& what, const std::string& text) {
    const std::lock_guard lock(mutex);
    thread_local size_t mine = 0;  // a plan is made by one thread
    if (what == "import") {
      mine = texts.size();
      texts.emplace_back();
    }
    if (what == pass || (pass == "last" && what != "plan")) texts[mine] = text;
  };
  RunOptions options = RunOptionsOn(DeviceNamedByFlags());
  CheckRuns(pass, options);
  options.on_pass = [&note, dump = options.on_pass](const std::string& name, const StepGraph& graph) {
    if (dump) dump(name, graph);
    note(name, GraphText(graph));
  };
  options.on_plan = [&note, dump = options.on_plan](const StepPlan& plan) {
    if (dump) dump(plan);
    note("plan", PlanText(plan));
  };
  MakePlans(options);
  if (texts.empty()) throw Error(ErrorCode::kInvalidNet, "the net runs no step net").At({.file = path});
  for (const std::string& text : texts) {
    if (text.empty()) throw UsageError(StrCat("--graph=", pass, ": the pass has not run"));
    std::cout << Printable(text);
  }
  return kOk;
}

}  // namespace stepnet::runner
