// RecomputationMaker: what a step back computes of the step forward again (Recomputation), and what it is given for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/compiler/backward_plan.h"
#include "stepnet/compiler/import_step.h"
#include "stepnet/compiler/recomputable.h"

namespace stepnet {

class RecomputationMaker {
 public:
  // Adds memory outside to both the plan and its graph.
  RecomputationMaker(const ForwardRun& forward, BackwardPlan* plan, StepGraph* graph);

  const std::vector<RecomputedValue>& values() const { return values_; }
  // Whether the blob is computed again.
  bool Gives(const std::string& blob) const { return part_.last.contains(blob); }
  // Where the step back reads such a blob until the pass recompute: where the run forward would have kept it.
  BoundBlob Bind(const std::string& blob);
  // Hands the recomputation to the graph, when all that is read has been bound.
  void Finish();

 private:
  int BaseOf(int base_of_forward);
  Home HomeOfSource(int value);

  const ForwardPlan& forward_;
  const std::string timestep_;
  const std::vector<RecomputedValue> values_;
  BackwardPlan& plan_;
  StepGraph& graph_;
  StepGraph part_;
  std::map<int, int> given_;  // base → value of part_
};

// The base of a step back for memory that the run forward leaves, as the plan of that numbers it.
int BaseOfKept(int base_of_forward, BackwardPlan* plan, StepGraph* graph);

}  // namespace stepnet
