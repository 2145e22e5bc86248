// What nodes of step graphs compute, by the names of their values.
#pragma once

#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// The value as a net's text shows its blob; "_" for kNoValue. Names come from files, and may hold anything.
std::string ValueName(const StepGraph& graph, int value);

// The equations of a node, of the shapes and arguments that it has: "c = f * c_prev + i * g", "y += x @ w^T". What an
// equation uses several times, or what is too long for it, has one of its own, by the name of the value that it is or
// as $0, $1, … . x[1] is the second of blocks of columns that have one width, x[3:8] are columns 3 to 7. What is
// written otherwise than by adding nothing is left out: x + 0 is x. Where operators cannot be written so, they stand
// there themselves: "a, b = Split(x, axis=-1)". Empty for a kPack.
std::vector<std::string> NodeFormulas(const StepGraph& graph, const StepNode& node);

}  // namespace stepnet
