#include "stepnet/compiler/passes/expand.h"

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/expansion.h"

namespace stepnet {
namespace {

// Where an operator says what it is made of for inputs of such shapes, that is what its node is. Returns whether it
// does.
bool ExpandNode(const StepGraph& graph, StepNode* node) {
  const std::vector<TensorInfo> inputs = graph.InfosOf(node->inputs);
  const ShapeQuery query(*node->call, inputs);
  const Expansion expansion(query);
  if (!expansion.products().empty()) {
    node->kind = StepNode::Kind::kProduct;
    node->products = expansion.products();
    return true;
  }
  if (!expansion.parts().empty()) node->kind = StepNode::Kind::kRegion;
  return !expansion.parts().empty();
}

const PassRegistration registration({.name = "expand", .place = 30, .opt_level = 0, .run = Expand});

}  // namespace

// What a region computes is not asked here: one of one operator runs its kernel.
bool Expand(StepGraph* graph) {
  bool is_changed = false;
  for (StepNode& node : graph->nodes) {
    if (node.kind != StepNode::Kind::kCall || node.by_blobs) continue;
    const OperatorSchema& schema = node.call->schema();
    if (schema.formula) {
      node.kind = StepNode::Kind::kRegion;
      is_changed = true;
    } else if (schema.expansion && ExpandNode(*graph, &node)) {
      is_changed = true;
    }
  }
  return is_changed;
}

}  // namespace stepnet
