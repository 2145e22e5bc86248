// Linearity: which operators are linear in what differs from step to step, as their formulas and expansions say. Of
// such a function f the sum over the steps is f of the sum: f(a) + f(b) = f(a + b), within rounding.
#pragma once

#include <span>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// What a value is of the values that differ from step to step.
enum class Linearity {
  kSame,    // it does not follow from them: it is the same in all steps
  kLinear,  // a linear function of them, all of them taken together
  kOther,   // something else, or nobody knows
};

// What each output of the node is where its inputs are that.
std::vector<Linearity> LinearityOf(const StepGraph& graph, const StepNode& node, std::span<const Linearity> inputs);

}  // namespace stepnet
