// What cells compute, in double and with plain loops: one step of one sequence for each cell of examples/cells, from
// the equations of its paper, and what the options of a cell make of steps.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stepnet/cells/cell.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

using Vector = std::vector<double>;
using Vectors = std::map<std::string, Vector>;  // by name, matrices by rows
using Tensors = std::map<std::string, Tensor>;  // by name

// Computes what a step writes from inputs, parameters, captured tensors and states, as one sequence has them before the
// step. A state with a window is its rows behind each other, the oldest first.
using ReferenceStep = std::function<Vectors(const Vectors& given)>;

// The step of examples/cells/<name>.cell; null for a cell without one.
ReferenceStep StepOfExample(const std::string& name);

// The outputs of the net of a cell, those of layers below the last included, from its inputs, parameters and initial
// states. Sequences are run one by one; dropout is not known.
Tensors RunReference(const CellDef& cell, const ReferenceStep& step, const Tensors& given);

}  // namespace stepnet
