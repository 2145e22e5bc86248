#include "stepnet/tools/rnn_runner/pass_dump.h"

#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <regex>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

DEFINE_string(disable_pass, "", "passes to leave out when plans of step nets are made, separated by commas");
DEFINE_string(dump_passes, "",
              "folder for the graphs of step nets after each pass, their plans and schedules (docs/step_graph.md)");

namespace stepnet::runner {
namespace {

std::atomic<int> num_plans = 0;  // whose dumps have begun

std::string TwoDigits(int number) { return StrCat(number < 10 ? "0" : "", number); }

// The place of a pass in their list, whichever of them run; behind it those of the plan and its schedule.
int NumberOf(const std::string& what) {
  const std::vector<Pass> passes = Passes();
  if (what == "import") return 0;
  const auto place = static_cast<int>(std::ranges::find(passes, what, &Pass::name) - passes.begin());
  return what == "schedule" ? static_cast<int>(passes.size()) + 2 : place + 1;
}

// Writes what became of a step net, as the file DIR/03.cell-backward.07-fold_sums.txt: the third plan, its seventh
// pass.
void Dump(const std::string& folder, const std::string& what, const std::string& net, bool backward,
          const std::string& text) {
  thread_local int plan = 0;  // a plan is made by one thread
  if (what == "import") plan = ++num_plans;
  constexpr size_t kMaxName = 60;
  const std::string name = (net.empty() ? "net" : FileNameOf(net.substr(0, kMaxName))) + (backward ? "-backward" : "");
  WriteFile(StrCat(folder, "/", TwoDigits(plan), ".", name, ".", TwoDigits(NumberOf(what)), "-", what, ".txt"), text);
}

// Whether Dump may have given a file its name.
bool IsNameOfDump(const std::string& file) {
  static const std::regex name(R"(\d\d+\..+\.\d\d-([a-z_]+)\.txt)");
  std::smatch parts;
  if (!std::regex_match(file, parts, name)) return false;
  const std::string what = parts[1];
  if (what == "import" || what == "plan" || what == "schedule") return true;
  return FindPass(what).has_value();
}

// Makes the folder, takes out of it what an earlier dump has left, which would be taken for a part of this one, and
// finds out whether files can be written there. Throws kInputOutput.
void PrepareFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  try {
    fs::create_directories(folder);
    std::vector<fs::path> earlier;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const bool is_file = entry.symlink_status().type() == fs::file_type::regular;
      if (is_file && IsNameOfDump(entry.path().filename().string())) earlier.push_back(entry.path());
    }
    for (const fs::path& path : earlier) fs::remove(path);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kInputOutput, StrCat("--dump_passes cannot use the folder: ", error.code().message()))
        .At({.file = folder});
  }
  std::string probe = StrCat(folder, "/.dump_passes-XXXXXX");
  const int file = mkstemp(probe.data());
  if (file < 0) {
    throw Error(ErrorCode::kInputOutput, StrCat("--dump_passes cannot write there: ", std::strerror(errno)))
        .At({.file = folder});
  }
  close(file);
  fs::remove(probe);
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : Passes()) names.emplace_back(pass.name);
  return names;
}

}  // namespace

std::vector<FlagUse> PassFlags() {
  return {{.name = "disable_pass", .value = "NAME,NAME", .is_list = true, .choices = PassNames},
          {.name = "dump_passes", .value = "DIR", .kind = ValueKind::kFolder}};
}

void ApplyPassFlags(RunOptions* options) {
  for (const std::string& name : SplitList(FLAGS_disable_pass)) options->disabled_passes.insert(name);
  try {
    CheckDisabledPasses(options->disabled_passes);
  } catch (const Error& error) {
    throw UsageError("--disable_pass: " + error.message());
  }
  for (const Pass& pass : Passes()) {
    if (options->opt_level >= pass.opt_level || !options->disabled_passes.contains(pass.name)) continue;
    throw UsageError(StrCat("--disable_pass=", pass.name, ": the pass runs from --opt_level=", pass.opt_level,
                            " on, and this is --opt_level=", options->opt_level));
  }
  if (FLAGS_dump_passes.empty()) return;
  static bool is_prepared = false;  // the runs of one command are one dump
  if (!is_prepared) PrepareFolder(FLAGS_dump_passes);
  is_prepared = true;
  options->on_pass = [folder = FLAGS_dump_passes](const std::string& pass, const StepGraph& graph) {
    Dump(folder, pass, graph.name, graph.backward, GraphText(graph));
  };
  options->on_plan = [folder = FLAGS_dump_passes](const StepPlan& plan) {
    Dump(folder, "plan", plan.name, plan.backward, PlanText(plan));
    if (plan.IsScheduled()) Dump(folder, "schedule", plan.name, plan.backward, ScheduleText(plan));
  };
}

void RemarkOnEmptyDump() {
  if (FLAGS_dump_passes.empty() || num_plans > 0) return;
  std::cerr << Printable(
      StrCat("warning: --dump_passes=", FLAGS_dump_passes, " has no files: no step net was compiled\n"));
}

}  // namespace stepnet::runner
