#include "stepnet/compiler/passes/passes.h"

namespace stepnet {

// What the region computes follows from the formula and is not asked here: a region of one operator runs its kernel.
void Expand(StepGraph* graph) {
  for (StepNode& node : graph->nodes) {
    const bool has_formula = node.kind == StepNode::Kind::kCall && node.call->schema().formula != nullptr;
    if (has_formula && !node.by_blobs) node.kind = StepNode::Kind::kRegion;
  }
}

}  // namespace stepnet
