// The text of a StepGraph (docs/step_graph.md has the grammar).
//
//   step cell {
//     x_t: float [1, 2, 3] at 1[24 * t]
//     w: float [3, 3] at 2
//     b: float [3] at 3
//     g.1: float [1, 2, 3] = FC(x_t, w, b) @0 {arg { name: "axis" i: 2 }}
//     h.1: float [1, 2, 3] at 0[24 * (t + 1)] = region Tanh(g.1) @1 {}
//     ^all: float [1, 2, 3] at 4[24 * t] = h.1
//   }
#pragma once

#include <string>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// All that a graph says which VerifyGraph accepts: ParseGraph makes an equal one of it, but for the order in which
// values and homes are numbered.
std::string GraphText(const StepGraph& graph);

// Operators get `options`; their target, and that of the graph, is the one of the options where it is of the device
// that the text names, else that device's. Throws kSyntaxError with the line for what is no such text, and what
// OperatorCall and ParseDevice throw.
StepGraph ParseGraph(const std::string& text, const RunOptions& options = {});

}  // namespace stepnet
