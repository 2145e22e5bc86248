// OperatorVerifier: checks that nodes of a StepGraph say of operators what their declarations say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Thrown with what is wrong with a graph, without where that is.
struct GraphFault {
  std::string what;
};

// Throws GraphFault: "node 3, y = FC(x, w, b): " and what is wrong with it.
[[noreturn]] void ThrowOfNode(const StepGraph& graph, int node, const std::string& what);

class OperatorVerifier {
 public:
  // Throws GraphFault for a node that runs operators, whose values exist, and says what they do not do. Asks the shape
  // rule of each operator once for all graphs in which it reads the same.
  void Check(const StepGraph& graph, const StepNode& node);

 private:
  // What the declaration of an operator says, for inputs of these descriptions.
  struct Facts {
    std::shared_ptr<const OperatorCall> call = {};
    std::vector<TensorInfo> inputs = {};
    std::optional<std::vector<TensorInfo>> outputs = {};  // nothing: only the values of inputs tell
    std::vector<std::optional<Product>> products = {};
  };

  void CheckCall(const StepGraph& graph, const StepNode& node);
  void CheckRegion(const StepGraph& graph, const StepNode& node);
  const Facts& FactsOf(const StepGraph& graph, const std::shared_ptr<const OperatorCall>& call,
                       const std::vector<int>& inputs);

  std::map<const OperatorCall*, Facts> facts_;
};

}  // namespace stepnet
