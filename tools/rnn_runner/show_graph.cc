#include "stepnet/tools/rnn_runner/show_graph.h"

#include <algorithm>
#include <iostream>
#include <mutex>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/printable.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/session.h"

namespace stepnet::runner {
namespace {

void CheckPass(const std::string& pass) {
  std::vector<std::string> names = {"last", "import"};
  for (const Pass& known : Passes()) names.emplace_back(known.name);
  if (std::ranges::find(names, pass) != names.end()) return;
  throw UsageError(StrCat("--graph is \"", pass, "\", must be one of ", Join(names, ", "), DidYouMean(pass, names)));
}

}  // namespace

int ShowGraphs(const std::string& path, const std::string& pass) {
  CheckFormat({"text"});
  CheckPass(pass);
  FLAGS_net = path;
  std::mutex mutex;
  std::vector<std::string> graphs;
  RunOptions options = RunOptionsFromFlags();
  options.quiet = true;
  const auto dump = options.on_pass;
  options.on_pass = [&](const std::string& name, const StepGraph& graph) {
    if (dump) dump(name, graph);
    const std::lock_guard lock(mutex);
    thread_local size_t mine = 0;  // a plan is made by one thread
    if (name == "import") {
      mine = graphs.size();
      graphs.emplace_back();
    }
    if (pass == "last" || pass == name) graphs[mine] = GraphText(graph);
  };
  Session session = OpenSession(options);
  graphs.clear();  // those of the net that fills parameters
  RunNet(*CreateNet(session.def, *session.workspace, options));
  if (graphs.empty()) throw Error(ErrorCode::kInvalidNet, "the net runs no step net").At({.file = path});
  for (const std::string& graph : graphs) {
    if (graph.empty()) throw UsageError(StrCat("--graph=", pass, ": the pass has not run"));
    std::cout << Printable(graph);
  }
  return kOk;
}

}  // namespace stepnet::runner
