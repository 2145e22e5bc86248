// Passes: each makes of a StepGraph another one that computes the same, within rounding, and from which a better plan
// follows. A pass is a file of this folder, which says what it does, why that is right and when it runs; its test
// compares texts before and after.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

struct Pass {
  const char* name;               // of its file
  int place;                      // passes run in the order of their places
  int opt_level;                  // from which on it runs (RunOptions::opt_level)
  bool required = false;          // plans would be wrong without it
  bool (*run)(StepGraph* graph);  // returns whether it has changed the graph
};

// Makes a pass known, as a variable at namespace scope.
class PassRegistration {
 public:
  explicit PassRegistration(const Pass& pass);
};

// In the order in which they run.
std::vector<Pass> Passes();
// Nothing where there is no pass of this name.
std::optional<Pass> FindPass(const std::string& name);

// Whether every graph of the process is verified thoroughly: the environment variable STEPNET_VERIFY_PASSES is set, as
// it is in tests.
bool VerifiesAll();

// What the environment asks of all graphs of the process, for runs of the whole suite: passes of higher levels do not
// run (STEPNET_TEST_OPT_LEVEL; throws kInvalidArgument where it is no level), and each pass is given what is read from
// the text of the graph that the one before has left, as the plan is made of that of the last one
// (STEPNET_TEST_GRAPH_TEXT).
int TestedOptLevel();
bool TestsGraphText();

// Throws kInvalidArgument, with what there is, for a pass that does not exist or is required.
void CheckDisabledPasses(const std::set<std::string>& names);

// Runs those of the options' opt_level that are not disabled. Verifies the graph before the first one and after each
// that has changed it. Where on_pass, an ExtraPass or VerifiesAll() asks for it, does so thoroughly and behind every
// one (docs/step_graph.md). Tells on_pass of each pass; before the first one of "import". Throws as CheckDisabledPasses
// and VerifyGraph, and kInternal for passes of one name or place, and for one that says that it has changed nothing
// where it was thorough and finds another text. `before_recompute` is called with the graph when all is decided by
// which anything is rounded, before the pass "recompute".
void RunPasses(const RunOptions& options, StepGraph* graph,
               const std::function<void(StepGraph*)>& before_recompute = nullptr);

// Runs those that stand before the pass of that name, and tells nobody.
void RunPassesBefore(const std::string& name, const RunOptions& options, StepGraph* graph);

// Runs behind the other passes for every plan that is made while the object lives, on any thread: for tests of what
// passes may leave behind. One at a time.
class ExtraPass {
 public:
  explicit ExtraPass(std::function<void(StepGraph*)> run);
  ExtraPass(const ExtraPass&) = delete;
  ExtraPass& operator=(const ExtraPass&) = delete;
  ~ExtraPass();
};

}  // namespace stepnet
