// RecurrentRecord: what a run of RecurrentNetwork leaves for its gradient and for those who fetch blobs of the step
// net. It is the object in the blob that Caffe2 calls step_workspaces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {

// A state for given shapes of the inputs.
struct StateLayout {
  int initial = 0;  // index of the input with the initial value
  DType dtype = DType::kFloat;
  Shape row;                     // of one step: [B, …]
  std::int64_t num_initial = 1;  // L
  // No step writes all of what follows the initial rows: rows that nobody has written are zeros.
  bool zero_first = true;
};

// The plan of one step with the meaning of its bases: states, inputs that links see row by row, the step's number,
// captured inputs, outputs [T, …].
struct ForwardPlan {
  std::shared_ptr<const StepPlan> steps;
  std::vector<StateLayout> states;                       // base i is state i
  std::vector<std::pair<int, int>> inputs;               // (input, base)
  int timestep_base = -1;                                // -1: the step net does not read it
  std::vector<std::pair<int, TensorInfo>> step_outputs;  // (base, one step's value), as in RecurrentSpec
  bool keeps_all = false;                                // every blob of every step can be fetched
};

struct RecurrentRecord {
  std::shared_ptr<const ForwardPlan> plan;
  std::string timestep;              // the step net's name for the number of the step
  std::vector<std::string> outputs;  // names of the forward operator's
  std::vector<TensorInfo> inputs;    // as they were in the forward run
  std::int64_t num_steps = 0;
  std::uint64_t run = 0;                            // for random numbers that the backward pass draws again
  std::vector<std::unique_ptr<Blob>> states;        // [T + L, B, …]
  std::vector<std::unique_ptr<Blob>> step_outputs;  // [T, …]
  Tensor timesteps;                                 // 0 … T-1, int32 [T]
  std::unique_ptr<RunState> steps;
};

// int32 [num_steps] holding 0, 1, 2, …; `old` when that is long enough already.
Tensor TimestepNumbers(std::int64_t num_steps, const Tensor& old);

// A view of a link for memory whose rows have dtype and shape `row`: what the step net sees of it.
BoundBlob BindLink(const Link& link, int base, DType dtype, const Shape& row);

// A tensor that all steps see whole: a captured input.
BoundBlob BindWhole(const std::string& blob, int base, const TensorInfo& info);

// The base of an input of the forward operator, given out the first time it is asked for: `bases` holds (input, base).
int BaseOfInput(int input, std::vector<std::pair<int, int>>* bases, int* num_bases);

// Rows of rings: how many steps may be under way at once.
std::int64_t RingRows(const RecurrentSpec& spec);

// Throws kShapeMismatch when some step in [0, num_steps) would see rows beyond `num_rows`.
void CheckLinkInBounds(const Link& link, std::int64_t num_rows, std::int64_t num_steps);

// Checks that input `i` of a recurrent operator, named `name`, fits the links that see it and gives num_steps steps.
void CheckSequence(const std::vector<Link>& links, const std::string& name, const Tensor& tensor,
                   std::int64_t num_steps);

// Which inputs the step net sees only row by row, through links: a plan serves any length of them.
std::vector<bool> SeenByRows(const std::vector<std::string>& inputs, const std::vector<Link>& links,
                             const NetDef& step_net);

// What a plan depends on: the inputs of the forward operator, those seen by rows without their length.
std::vector<TensorInfo> PlanKey(std::vector<TensorInfo> inputs, const std::vector<bool>& seen_by_rows);

}  // namespace stepnet
