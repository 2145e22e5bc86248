// CellCase: a cell with sizes, its net in double, random values for all that it reads, and the comparison of what it
// computes and of its gradients with the reference.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cell_references.h"
#include "stepnet/cells/cell_expand.h"

namespace stepnet {

// The names of the files examples/cells/*.cell, without folder and extension.
std::vector<std::string> ExampleCells();
CellSource ReadExampleCell(const std::string& name);
// Small sizes for any of them.
CellSizes SmallSizes(const CellDef& cell);

struct CellCase {
  CellSource cell;
  CellUse use;
  std::int64_t num_steps = 0;
  std::int64_t batch = 0;
  unsigned seed = 1;

  CellNet Expand() const { return ExpandCell(cell, use); }
  // Random inputs, parameters and initial states; lengths from 0 to T.
  Tensors RandomValues(const CellNet& net) const;
};

// Runs the net, in double, on `given`, on every device that there is; its outputs and those of states that are carried.
Tensors RunCell(const CellNet& net, const Tensors& given);
// A net, in double, of the gradients of the sum of all outputs, weighted with `weights`, what it reads, and the blob of
// each gradient.
struct CellGradientNet {
  NetDef net;
  Tensors inputs;
  std::map<std::string, std::string> gradients;  // of parameters and floating inputs
};
CellGradientNet MakeGradientNet(const CellNet& net, const Tensors& given, const Tensors& weights);
// The gradients of the sum of all outputs, weighted with `weights`, of parameters and floating inputs.
Tensors CellGradients(const CellNet& net, const Tensors& given, const Tensors& weights);

// Compares outputs: all of `wanted`, within so much of their size.
void ExpectTensorsNear(const Tensors& got, const Tensors& wanted, double tolerance = 1e-12);
// The outputs of the case's net are those of its reference.
void ExpectFollowsReference(const CellCase& test, const ReferenceStep& step);
// The gradients of the case's net are the differences of its reference.
void ExpectGradientsOfReference(const CellCase& test, const ReferenceStep& step);

}  // namespace stepnet
