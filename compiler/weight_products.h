// Products of a value of the step and a matrix that all steps share: what passes ask of them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

class WeightProducts {
 public:
  explicit WeightProducts(const StepGraph& graph);

  // Whether the node is a product of a value and a matrix, perhaps with a bias, and nothing else.
  static bool MultipliesByMatrix(const StepGraph& graph, const StepNode& node);
  // Whether that is so, and all steps share the matrix and the bias.
  bool Contains(const StepNode& node) const;
  // What such products have in common whose weights may lie side by side, so that they are one (merge_products).
  std::string KeyOf(const StepNode& node) const;
  // REQUIRES of what follows: MultipliesByMatrix.
  static int LeftOf(const StepNode& node) { return node.inputs[node.products[0]->left.input]; }
  static int WeightOf(const StepNode& node) { return node.inputs[node.products[0]->right->input]; }
  static bool HasBias(const StepNode& node) { return node.products[0]->bias >= 0; }
  bool HasSharedBias(const StepNode& node) const {
    return !HasBias(node) || IsTheSameInAllSteps(node.inputs[node.products[0]->bias]);
  }
  // Bytes that the matrix takes in the dtype that is computed in.
  std::int64_t WeightBytes(const StepNode& node) const;
  bool IsTheSameInAllSteps(int value) const;

 private:
  const StepGraph& graph_;
  const std::set<int> written_;  // bases
};

// A node for an operator with the options of another, of which errors and traces say that it is at its place.
StepNode NodeLike(const StepNode& like, const OperatorDef& def, std::vector<int> inputs, std::vector<int> outputs);

// Puts nodes before others, by the node that they stand before, and takes away those for which `gone` holds; `once` run
// before the first step.
void ReplaceNodes(std::vector<std::vector<StepNode>> put_before, const std::vector<bool>& gone,
                  std::vector<StepNode> once, StepGraph* graph);

}  // namespace stepnet
