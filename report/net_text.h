// Nets as people read them: short text, and pictures for Graphviz.
#pragma once

#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// `net name(inputs) -> (outputs) {`, a line an operator, step nets within their operator. Works on any net, checked or
// not; long lists and texts are shortened.
std::string NetAsText(const NetDef& net);

// A digraph: operators as boxes, step nets as clusters; inputs and outputs as ellipses, parameters as cylinders, states
// as hexagons, with an edge from what a step writes to what a later one reads.
std::string NetAsDot(const NetDef& net);

// The argument's value: "2", "[1, 2]", "\"abc\"".
std::string ArgumentText(const Argument& argument);

}  // namespace stepnet
