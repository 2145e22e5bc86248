// ForwardPlan: the plan of a RecurrentNetwork operator for given inputs.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/compiler/recurrent_plan.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/nets/forward_operator.h"

namespace stepnet {

// The plan of one step with the meaning of its bases: states, inputs that links see row by row, the step's number,
// captured inputs, outputs [T, …].
struct ForwardPlan {
  std::shared_ptr<const StepPlan> steps;
  std::vector<StateLayout> states;                       // base i is state i
  std::vector<std::pair<int, int>> inputs;               // (input, base): lent
  int timestep_base = -1;                                // int32 [T]; -1: the step net does not read it
  std::vector<std::pair<int, TensorInfo>> step_outputs;  // (base, one step's value), as in RecurrentSpec
  bool keeps_all = false;                                // every blob of every step can be fetched
  // Inputs whose values the shapes in a step follow from, with these.
  std::vector<std::pair<int, Tensor>> values;
  // Blobs that are not kept although the backward step net reads them, for it reads no more than their shapes.
  std::map<std::string, TensorInfo> shapes;
  // What runs need not keep for their gradients, in the order in which it is better not to (FindRecomputable). None on
  // a device that does its work later. Known with the plan, for it is asked for where there is no memory to find out.
  std::vector<RecomputedValue> recomputable;
  // What is not kept although the backward step net reads it, for that computes it again: the first ones of
  // `recomputable`.
  std::vector<RecomputedValue> recomputed;
};

// Says with how little memory a plan does, at the cost of time.
struct LessMemory {
  std::int64_t max_block_steps = 0;  // that blocks have at most; 0: as many as suit (PlanSettings)
  std::int64_t num_recomputed = 0;   // of ForwardPlan::recomputable that the steps back compute again

  bool operator==(const LessMemory&) const = default;
};

// `inputs` describes the operator's inputs; the number of steps, dimension 0 of sequences, does not matter. Values of
// captured ones, where there are some, are those of all runs of the plan (CapturedSizes). Throws what MakeStepPlan
// throws, and kShapeMismatch for initial states that do not fit the batch.
std::shared_ptr<const ForwardPlan> MakeForwardPlan(const ForwardOperator& forward,
                                                   const std::vector<TensorInfo>& inputs, const LessMemory& less = {});

// How many of `recomputable` a run of so many steps better computes again, however much memory there is: those that
// follow from less, where all steps would keep more of them than caches hold. Runs that stay in the caches take longer
// with them: a cell of pairs of 32 units 1.2 times for 50 steps of a batch of 16, 0.7 for 200 (docs/performance.md).
std::int64_t NumBetterRecomputed(const ForwardPlan& plan, std::int64_t num_steps);

// The step of the plan for these inputs before the pass recompute, and the bases of its memory that a run of the
// gradient is lent, too.
struct StepToRecompute {
  StepGraph graph;
  std::set<int> bases;
};
StepToRecompute MakeStepToRecompute(const ForwardOperator& forward, const std::vector<TensorInfo>& inputs);

// Which inputs of the operator are tensors from whose elements shapes in a step follow, forward or backward.
std::vector<int> CapturedSizes(const ForwardOperator& forward);

// How many rows a state starts with, by the shape of its initial value: L of [L, B, …], 1 of [D] and [B, D].
std::int64_t NumInitialRows(const Shape& initial);

// The layout of a state from its initial value: [D] (the same for every row of the batch), [B, D], or [L, B, …]; a
// batch of 1 is repeated. Throws kShapeMismatch.
StateLayout LayoutOf(const RecurrentState& state, const OperatorCall& op, const std::vector<TensorInfo>& inputs);

}  // namespace stepnet
