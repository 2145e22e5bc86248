// What the plans of a recurrent operator's steps, forward and backward, have in common: the layout of states and the
// memory that links show.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/make_step_plan.h"
#include "stepnet/compiler/step_bindings.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

// How a state lies in memory, for given shapes of the inputs.
struct StateLayout {
  int initial = 0;  // index of the input with the initial value
  DType dtype = DType::kFloat;
  Shape row;                     // of one step: [B, …]
  std::int64_t num_initial = 1;  // L
  std::int64_t ring_rows = 0;    // of which steps use so many rows in turn; 0: there are T + L

  // How many rows there are in a run of so many steps, and which of them the last one is.
  std::int64_t NumRows(std::int64_t num_steps) const {
    const std::int64_t rows = num_steps + num_initial;
    return ring_rows > 0 ? std::min(rows, ring_rows) : rows;
  }
  std::int64_t LastRow(std::int64_t num_steps) const {
    const std::int64_t last = num_steps + num_initial - 1;
    return ring_rows > 0 ? last % ring_rows : last;
  }
};

// A view of a link for memory whose rows have dtype and shape `row`: what the step net sees of it.
BoundBlob BindLink(const Link& link, int base, DType dtype, const Shape& row);

// A tensor that all steps see whole: a captured input.
BoundBlob BindWhole(const std::string& blob, int base, const TensorInfo& info);

// The base of an input of the forward operator, whose memory is lent, given out the first time it is asked for: `bases`
// holds (input, base).
int BaseOfInput(int input, std::vector<std::pair<int, int>>* bases, StepGraph* graph);

// A base for the numbers of the steps, which a move before the first step gives.
int AddTimestep(const std::string& blob, StepGraph* graph);
// Binds the number of the step to such a base.
int BindTimestep(const std::string& blob, StepBindings* bindings, StepGraph* graph);

// What plans are made with: the operator's options, and where its arguments ask for it, schedules are printed to
// standard error. A ring has as many rows as steps may be under way at once.
PlanSettings PlanSettingsOf(const RecurrentSpec& spec);

// Throws kShapeMismatch when some step in [0, num_steps) would see rows beyond `num_rows`.
void CheckLinkInBounds(const Link& link, std::int64_t num_rows, std::int64_t num_steps);

// Throws kShapeMismatch when a step would see rows of a state, or of its gradient, behind the new one.
void CheckLinkInState(const Link& link, std::int64_t num_initial);

// Which inputs the step net sees only row by row, through links: a plan serves any length of them.
std::vector<bool> SeenByRows(const std::vector<std::string>& inputs, const std::vector<Link>& links,
                             const NetDef& step_net);

// What a plan depends on: the inputs of the forward operator, those seen by rows without their length.
std::vector<TensorInfo> PlanKey(std::vector<TensorInfo> inputs, const std::vector<bool>& seen_by_rows);

}  // namespace stepnet
