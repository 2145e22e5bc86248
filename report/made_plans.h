// Plans as they are made, with the graphs that they come from.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/run_options.h"

namespace stepnet {

struct MadePlan {
  StepGraph imported;            // before all passes
  StepGraph unmerged;            // before merge_products, where that runs
  StepGraph graph;               // behind them
  std::set<std::string> passes;  // that have run
  std::set<std::string> folded;  // blobs that products add as biases since fold_biases, and operators did before
  StepPlan plan;
};

class MadePlans {
 public:
  // From now on whoever makes a plan with `options` tells this object, which must live as long, besides those who were
  // told before.
  void Watch(RunOptions* options);

  // REQUIRES: none is being made.
  const std::vector<MadePlan>& plans() const { return plans_; }

 private:
  void NotePass(const std::string& name, const StepGraph& graph);
  void NotePlan(const StepPlan& plan);

  std::mutex mutex_;
  std::vector<MadePlan> plans_;
  std::map<std::thread::id, size_t> last_;  // a plan is made by one thread
};

}  // namespace stepnet
