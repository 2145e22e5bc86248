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
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <system_error>
#include <utility>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/plan_text.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tools/rnn_runner/command_files.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

DEFINE_string(disable_pass, "", "passes to leave out when plans of step nets are made, separated by commas");
DEFINE_string(dump_passes, "",
              "folder for the graphs of step nets after each pass, their plans and schedules (docs/step_graph.md)");

namespace stepnet::runner {
namespace {

constexpr const char* kList = ".dump_passes";

std::atomic<int> num_plans = 0;  // whose dumps have begun

std::string TwoDigits(int number) { return StrCat(number < 10 ? "0" : "", number); }

// The place of a pass in their list, whichever of them run; behind it those of the plan and its schedule.
int NumberOf(const std::string& what) {
  const std::vector<Pass> passes = Passes();
  if (what == "import") return 0;
  const auto place = static_cast<int>(std::ranges::find(passes, what, &Pass::name) - passes.begin());
  return what == "schedule" ? static_cast<int>(passes.size()) + 2 : place + 1;
}

// Whether a line of the list says the name of a file that a dump writes; whatever else it says is left alone.
bool IsNameOfDump(const std::string& file) {
  static const std::regex name(R"(\d\d+\.[^/]+\.\d\d-[a-z_]+\.txt)");
  return std::regex_match(file, name);
}

// The files of one dump, and in the file .dump_passes beside them a list of their names.
class PassDump {
 public:
  // Makes the folder and finds out whether files can be written there. Throws kInputOutput.
  explicit PassDump(std::string folder) : folder_(std::move(folder)) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!error) fs::directory_iterator(folder_, error);
    if (error) Throw(StrCat("cannot use the folder: ", error.message()));
    std::string probe = StrCat(folder_, "/.dump_passes-XXXXXX");
    const int file = mkstemp(probe.data());
    if (file < 0) Throw(StrCat("cannot write there: ", std::strerror(errno)));
    close(file);
    fs::remove(probe, error);
  }

  // Writes what became of a step net, as the file DIR/03.cell-backward.07-fold_sums.txt: the third plan, its seventh
  // pass. The first one takes out of the folder what the dump before this one wrote, which would be taken for a part
  // of this one.
  void Write(const std::string& what, const std::string& net, bool backward, const std::string& text) {
    thread_local int plan = 0;  // a plan is made by one thread
    if (what == "import") plan = ++num_plans;
    constexpr size_t kMaxName = 60;
    const std::string name =
        (net.empty() ? "net" : FileNameOf(net.substr(0, kMaxName))) + (backward ? "-backward" : "");
    const std::string file = StrCat(TwoDigits(plan), ".", name, ".", TwoDigits(NumberOf(what)), "-", what, ".txt");
    {
      const std::lock_guard lock(mutex_);
      if (names_.empty()) RemoveEarlier();
      names_ += file + "\n";
      WriteFile(ListPath(), names_);
    }
    WriteFile(StrCat(folder_, "/", file), text);
  }

 private:
  std::string ListPath() const { return StrCat(folder_, "/", kList); }

  void RemoveEarlier() const {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::symlink_status(ListPath(), error).type() != fs::file_type::regular) return;
    std::istringstream names(ReadFile(ListPath()));
    for (std::string name; std::getline(names, name);) {
      const std::string path = StrCat(folder_, "/", name);
      if (!IsNameOfDump(name) || fs::symlink_status(path, error).type() != fs::file_type::regular) continue;
      fs::remove(path, error);
      if (error) Throw(StrCat("cannot remove ", name, ": ", error.message()));
    }
  }

  [[noreturn]] void Throw(const std::string& message) const {
    throw Error(ErrorCode::kInputOutput, "--dump_passes " + message).At({.file = folder_});
  }

  const std::string folder_;
  std::mutex mutex_;
  std::string names_;  // of the files of this dump, a line each
};

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
  NoteWritten(FLAGS_dump_passes, "--dump_passes",
              [](const std::string& name) { return name == kList || IsNameOfDump(name); });
  static const auto dump = std::make_shared<PassDump>(FLAGS_dump_passes);  // the runs of one command are one
  options->on_pass = [to = dump](const std::string& pass, const StepGraph& graph) {
    to->Write(pass, graph.name, graph.backward, GraphText(graph));
  };
  options->on_plan = [to = dump](const StepPlan& plan) {
    to->Write("plan", plan.name, plan.backward, PlanText(plan));
    if (plan.IsScheduled()) to->Write("schedule", plan.name, plan.backward, ScheduleText(plan));
  };
}

void RemarkOnEmptyDump() {
  if (FLAGS_dump_passes.empty() || num_plans > 0) return;
  std::cerr << Printable(
      StrCat("warning: --dump_passes=", FLAGS_dump_passes, " wrote no files: no step net was compiled\n"));
}

}  // namespace stepnet::runner
