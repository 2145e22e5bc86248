// The graph of a step as a picture, for pages.
#pragma once

#include <string>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// An SVG element without styles of its own: nodes are of the classes product, region, call, move and pack, what they
// read from outside of the step and what they leave there of the class value; arrows go down, from what gives a value
// to what reads it. What a step leaves for the next one says as what that reads it. Empty for a graph of more nodes
// than somebody could follow.
std::string GraphDrawing(const StepGraph& graph);

}  // namespace stepnet
