// VerifyGraph: checks what is true of every StepGraph, before and after each pass.
#pragma once

#include <string>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Throws kInternal, naming the pass that has just run, for a graph in which
// - a node reads a value before it is given, or after its home has been given another one;
// - two values have one name, or a value two producers, or none that it names;
// - a value is larger than the memory outside in which it lives;
// - a move has other than one input and one output of one dtype and size, or a call other inputs than its operator;
// - a call adds to an output to which its kernel cannot add;
// - a region has an operator without formula, or its operators read what none of them and no input gives;
// - a value that is in no memory is used outside of its region;
// - stages are not all nodes in their order.
void VerifyGraph(const StepGraph& graph, const std::string& pass);

}  // namespace stepnet
