// StepDraft: a step on its way to a plan. Passes (compiler/passes/passes.h) change it.
#pragma once

#include <map>
#include <set>
#include <string>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

struct StepDraft {
  StepPlanRequest request;  // what the step's blobs are bound to
  StepGraph graph;
  // Blobs that an operator adds to memory outside itself (Kernel::can_add), by their number among request.transfers.
  std::map<std::string, int> direct_sums = {};
  std::set<int> unneeded = {};  // values that no instruction gives

  // Whether the operator runs with blobs: itself, or because another value of a blob that it uses has no known shape.
  bool RunsWithBlobs(const StepNode& node) const;

  // The graph, what goes between it and memory outside, and what passes have found:
  //
  //   net step(w, x_t) {
  //     g.1 = FC(x_t, w)  # float [1, 2, 3]
  //   }
  //   w is bound to base 1
  //   all[t + 1] = g
  //   sum += dw, by its operator
  //   dx.1 is not needed
  std::string ToString() const;
};

// The draft of a request, before any pass. Throws what ImportStepNet throws.
StepDraft ImportStep(StepPlanRequest request);

// Whether a transfer gives a blob of the step its value, or a part of it.
bool GoesIn(const Transfer& transfer);

}  // namespace stepnet
