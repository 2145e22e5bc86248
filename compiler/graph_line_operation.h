// What a line of the text of a step graph says behind "=" (docs/step_graph.md).
#pragma once

#include <functional>

#include "stepnet/compiler/graph_line_reader.h"
#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Takes the name of a value from the line and returns its number.
using UseReader = std::function<int(LineReader&)>;

// A node without outputs and call: `def` has all but the names of inputs and outputs. Throws what LineReader does for
// what is no operation.
StepNode ReadOperation(LineReader& line, const UseReader& read_use);

}  // namespace stepnet
