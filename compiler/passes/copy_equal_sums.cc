#include <algorithm>

#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/floating.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool SumsNothing(const StepGraph& graph, const StepNode& node) {
  if (!node.IsOneOperator() || node.by_blobs || node.def->arg_size() > 0) return false;
  const std::optional<int> sum_like = node.call->schema().sum_like;
  if (!sum_like) return false;
  const TensorInfo &term = graph.values[node.inputs[0]].info, &like = graph.values[node.inputs[*sum_like]].info;
  return IsFloatOrDouble(term.dtype) && term.shape == like.shape;
}

// An operator that sums a gradient until it has the shape of an input (OperatorSchema::sum_like) becomes a move where
// it has that shape already. A gradient rule knows no shapes: it writes such a sum for each input that may be repeated.
bool CopyEqualSums(StepGraph* graph) {
  std::vector<int> likes;
  for (StepNode& node : graph->nodes) {
    if (!SumsNothing(*graph, node)) continue;
    likes.push_back(node.inputs[*node.call->schema().sum_like]);
    node = {.kind = StepNode::Kind::kMove, .inputs = {node.inputs[0]}, .outputs = std::move(node.outputs)};
  }
  if (likes.empty()) return false;
  std::vector<bool> is_read(graph->values.size(), false);
  for (const StepNode& node : graph->nodes) {
    for (const int input : node.inputs) is_read[input] = true;
  }
  // What the step finds need not be there for its shape alone, which is known now.
  for (const int like : likes) {
    if (graph->values[like].producer < 0 && !is_read[like]) graph->ForgetLast(like);
  }
  graph->Erase(std::vector<bool>(graph->nodes.size(), false));
  return true;
}

const PassRegistration registration({.name = "copy_equal_sums", .place = 10, .opt_level = 0, .run = CopyEqualSums});

}  // namespace
}  // namespace stepnet
