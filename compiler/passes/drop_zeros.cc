#include <algorithm>
#include <memory>
#include <vector>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/uses.h"
#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

// Whether the formula of the operator that gives the value says that it is 0, whatever the inputs are.
bool IsZero(const StepGraph& graph, int value) {
  const StepNode& node = graph.nodes[graph.values[value].producer];
  const std::shared_ptr<const FormulaProgram> made = FormulaOf(graph, node);
  if (made == nullptr) return false;
  const FormulaRegion& formula = made->formula();
  const int output = IndexOf(formula.outputs, IndexOf(node.outputs, value));
  // One that is computed in pieces is several outputs of the region.
  if (output < 0 || std::ranges::count(formula.outputs, formula.outputs[output]) > 1) return false;
  const ExprNode& expr = *formula.region.outputs[output].value;
  return expr.op == ExprOp::kConstant && expr.bits == 0;
}

// A term that is 0, as a formula says, is not added to memory outside.
bool DropZeros(StepGraph* graph) {
  std::vector<bool> gone(graph->nodes.size(), false);
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    const StepNode& node = graph->nodes[n];
    gone[n] = AddsTermOutside(*graph, node) && IsZero(*graph, node.inputs[0]);
  }
  if (!std::ranges::count(gone, true)) return false;
  graph->Erase(gone);
  return true;
}

const PassRegistration registration({.name = "drop_zeros", .place = 70, .opt_level = 1, .run = DropZeros});

}  // namespace
}  // namespace stepnet
