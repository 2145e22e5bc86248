#include "stepnet/compiler/passes/weight_products.h"

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

}  // namespace stepnet
