// Passes: each makes of a draft another one that computes the same, within rounding, and from which a better plan
// follows. A pass is a file of this folder and a line in the list of passes.cc; its test compares texts before and
// after.
#pragma once

#include <span>

#include "stepnet/compiler/step_draft.h"

namespace stepnet {

struct Pass {
  const char* name;  // of its file
  int opt_level;     // from which on it runs
  void (*run)(StepDraft* draft);
};

// In the order in which they run.
std::span<const Pass> Passes();

// Runs those of the draft's opt_level.
void RunPasses(StepDraft* draft);

// Where a step adds up terms with Sum only to add that to memory outside, it adds each term there: outside += Sum(a, b)
// becomes outside += a and outside += b, the same within rounding. So each of several operators that use one weight may
// add to its gradient itself, and need not wait for the others in the same step.
void AddTerms(StepDraft* draft);

// Finds the sums over the steps whose terms one operator computes, can add there itself (Kernel::can_add), which saves
// a copy of each term, and nothing else reads.
void FoldSums(StepDraft* draft);

// Finds the values that nothing reads, in the step or outside, and that come from operators which compute only those of
// their outputs that they are asked for (Operator::Rows): the gradient of weights that nobody trains.
void DropOutputs(StepDraft* draft);

}  // namespace stepnet
