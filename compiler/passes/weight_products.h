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

  // Whether the node is such a product, and nothing else; its bias, if it has one, is shared, too.
  bool Contains(const StepNode& node) const;
  // What makes it one: it is a product with a matrix, that is the same in all steps, and so is its bias. The latter two
  // REQUIRE the first.
  bool MultipliesByMatrix(const StepNode& node) const;
  bool HasSharedWeight(const StepNode& node) const;
  bool HasSharedBias(const StepNode& node) const;
  static bool HasBias(const StepNode& node) { return node.products[0]->bias >= 0; }
  // What such products have in common whose weights may lie side by side, so that they are one (merge_products).
  std::string KeyOf(const StepNode& node) const;
  // The value that holds the matrix.
  static int WeightOf(const StepNode& node);
  // Bytes that it takes in the dtype that is computed in.
  std::int64_t WeightBytes(const StepNode& node) const;

 private:
  bool IsTheSameInAllSteps(int value) const;

  const StepGraph& graph_;
  const std::set<int> written_;  // bases
};

// A node for an operator with the options of another, of which errors and traces say that it is at its place.
StepNode NodeLike(const StepNode& like, const OperatorDef& def, std::vector<int> inputs, std::vector<int> outputs);

}  // namespace stepnet
