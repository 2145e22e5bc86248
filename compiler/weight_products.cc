#include "stepnet/compiler/weight_products.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "stepnet/compiler/uses.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

WeightProducts::WeightProducts(const StepGraph& graph) : graph_(graph), written_(WrittenBases(graph)) {}

bool WeightProducts::IsTheSameInAllSteps(int value) const {
  return graph_.homes[graph_.values[value].home].kind == Home::Kind::kOnce || IsGivenWhole(graph_, written_, value);
}

bool WeightProducts::MultipliesByMatrix(const StepGraph& graph, const StepNode& node) {
  if (node.kind != StepNode::Kind::kProduct || node.outputs.size() != 1 || node.outputs[0] == kNoValue) return false;
  if (!DependsOnInputsAlone(graph, node) || !node.products[0] || !node.products[0]->right) return false;
  const Product& product = *node.products[0];
  if (node.inputs.size() != (product.bias >= 0 ? 3u : 2u) || product.left.input == product.right->input) return false;
  const Shape& weight = graph.values[WeightOf(node)].info.shape;
  return weight.rank() == 2 && weight == product.right->shape;
}

bool WeightProducts::Contains(const StepNode& node) const {
  return MultipliesByMatrix(graph_, node) && HasSharedBias(node) && IsTheSameInAllSteps(WeightOf(node));
}

std::string WeightProducts::KeyOf(const StepNode& node) const {
  const Product& product = *node.products[0];
  std::string key = StrCat(node.inputs[product.left.input], " ", node.call->type(), " ", product.bias, " ",
                           product.right->transposed, " ", graph_.values[WeightOf(node)].info.dtype);
  for (const Argument& argument : node.def->arg()) key += " " + argument.SerializeAsString();
  return key;
}

std::int64_t WeightProducts::WeightBytes(const StepNode& node) const {
  return ComputedBytes(graph_.values[WeightOf(node)].info);
}

StepNode NodeLike(const StepNode& like, const OperatorDef& def, std::vector<int> inputs, std::vector<int> outputs) {
  return {.call = std::make_shared<const OperatorCall>(def, like.call->options()),
          .def = std::make_shared<const OperatorDef>(def),
          .op_index = like.op_index,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs)};
}

void ReplaceNodes(std::vector<std::vector<StepNode>> put_before, const std::vector<bool>& gone,
                  std::vector<StepNode> once, StepGraph* graph) {
  std::vector<StepNode> nodes;
  std::vector<bool> is_gone;
  std::vector<Stage> stages = graph->stages;
  for (size_t n = 0, s = 0; n < graph->nodes.size(); ++n) {
    while (s < stages.size() && graph->stages[s].end <= static_cast<int>(n)) ++s;
    const auto added = static_cast<int>(put_before[n].size());
    for (size_t later = s; later < stages.size(); ++later) {
      if (later > s) stages[later].begin += added;
      stages[later].end += added;
    }
    std::ranges::move(put_before[n], std::back_inserter(nodes));
    nodes.push_back(std::move(graph->nodes[n]));
    is_gone.resize(nodes.size(), false);
    is_gone.back() = gone[n];
  }
  graph->nodes = std::move(nodes);
  graph->stages = std::move(stages);
  if (const size_t num_once = once.size(); num_once > 0) {
    const int begin = graph->AddOnce(std::move(once));
    is_gone.insert(is_gone.begin() + begin, num_once, false);
  }
  graph->Erase(is_gone);
}

}  // namespace stepnet
