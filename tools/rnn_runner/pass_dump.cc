#include "stepnet/tools/rnn_runner/pass_dump.h"

#include <gflags/gflags.h>

#include <atomic>
#include <filesystem>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

DEFINE_string(disable_pass, "", "passes to leave out when plans of step nets are made, separated by commas");
DEFINE_string(dump_passes, "", "folder for the graphs of step nets after each pass, a file each (docs/step_graph.md)");

namespace stepnet::runner {
namespace {

// What a name may be called in a file's name.
std::string FileNameOf(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 60)) text += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return text.empty() ? "net" : text;
}

std::string TwoDigits(int number) { return StrCat(number < 10 ? "0" : "", number); }

// The file DIR/03.cell-backward.02-fold_sums.txt, of the third plan and its second pass.
void Dump(const std::string& folder, const std::string& pass, const StepGraph& graph) {
  static std::atomic<int> num_plans = 0;
  thread_local int plan = 0, number = 0;  // a plan is made by one thread
  number = pass == "import" ? 0 : number + 1;
  if (number == 0) plan = ++num_plans;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::kInputOutput, StrCat("the folder cannot be made: ", error.message())).At({.file = folder});
  const std::string name = FileNameOf(graph.name) + (graph.backward ? "-backward" : "");
  WriteFile(StrCat(folder, "/", TwoDigits(plan), ".", name, ".", TwoDigits(number), "-", pass, ".txt"),
            GraphText(graph));
}

}  // namespace

std::vector<FlagUse> PassFlags() {
  return {{.name = "disable_pass", .value = "NAME,NAME", .is_list = true}, {.name = "dump_passes", .value = "DIR"}};
}

void ApplyPassFlags(RunOptions* options) {
  for (const std::string& name : SplitList(FLAGS_disable_pass)) options->disabled_passes.insert(name);
  try {
    CheckDisabledPasses(options->disabled_passes);
  } catch (const Error& error) {
    throw UsageError("--disable_pass: " + error.message());
  }
  if (FLAGS_dump_passes.empty()) return;
  options->on_pass = [folder = FLAGS_dump_passes](const std::string& pass, const StepGraph& graph) {
    Dump(folder, pass, graph);
  };
}

}  // namespace stepnet::runner
