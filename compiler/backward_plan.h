// BackwardPlan: the plan of a RecurrentNetworkGradient operator.
//
// Gradients of states live in one tensor a state, [T + L, B, …]: row r is the sum of what the loss, through the
// outputs, and every later step contribute to row r of the state. Rows start as the outputs' gradients, zero elsewhere.
// Step t reads the rows that it gave in the forward pass, r >= t + L, where all contributions have arrived, and adds to
// the rows that it read. So any offset and window is right, overlapping ones too.
#pragma once

#include <memory>
#include <span>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/nets/backward_roles.h"

namespace stepnet {

// Where the gradient operator lists the forward operator's inputs among its own.
struct GradientInputs {
  int num_output_gradients = 0;
  int num_inputs = 0;  // how many the forward operator has; they follow the outputs' gradients

  // Give the numbers that the forward operator's inputs and outputs have among the inputs.
  int OfInput(int input) const { return num_output_gradients + input; }
  int OfOutput(int output) const { return num_output_gradients + num_inputs + output; }
};

// A tensor that receives gradients: an output of the operator.
struct GradientTarget {
  int output = 0;  // number of the gradient operator's output, the first one with its name
  int input = 0;   // number of the forward operator's input that the gradient is for
  int base = -1;
  // Where the gradient is added to what the caller has: that, and what it finds in the end. One tensor, or two where
  // others hold the first one, too.
  int base_of_caller = -1;
  int base_given = -1;
  std::vector<Link> links = {};  // the links through which steps see its rows
};

struct BackwardPlan {
  std::shared_ptr<const StepPlan> steps;
  std::shared_ptr<const ForwardPlan> forward;  // whose records it reads
  // Base i is the gradient of state i, base states + i the value of state i, which is lent.
  std::vector<std::pair<int, int>> inputs;  // (forward input, base): lent
  int timestep_base = -1;                   // int32 [T]; -1: the step net does not read it
  std::vector<GradientTarget> targets;
  std::vector<std::pair<int, int>> output_gradients;  // (gradient of an output as the operator lists it, base): lent
  std::vector<std::pair<int, int>> step_output_gradients;  // (step output as in RecurrentSpec, base): lent
  std::vector<std::pair<int, int>> zero_gradients;         // as these, of those that nobody gives: the plan's own zeros
  std::vector<std::pair<int, int>> stacked;                // (base of the forward plan, base)
  std::vector<std::pair<int, int>> dynamic;                // (dynamic list of the forward plan, list)
};

// What the plan of the gradient depends on in a run of the forward operator.
struct ForwardRun {
  std::shared_ptr<const ForwardOperator> op;
  std::shared_ptr<const ForwardPlan> plan;
  const std::vector<TensorInfo>& inputs;
  std::span<const RecomputedValue> recomputed = {};  // what is not there any more, if it ever was: all of the plan's
};

// `op` is the gradient operator, which agrees with its forward operator; `roles` is what the check of that has found
// (CheckGradient). Throws what MakeStepPlan throws, and kShapeMismatch for links beyond the rows that there are.
std::shared_ptr<const BackwardPlan> MakeBackwardPlan(const OperatorCall& op, const RecurrentSpec& spec,
                                                     const BackwardRoles& roles, const GradientInputs& layout,
                                                     const ForwardRun& forward);

}  // namespace stepnet
