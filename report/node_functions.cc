#include "stepnet/report/node_functions.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "stepnet/core/formulas/formula_cache.h"

namespace stepnet {
namespace {

bool IsVectorFunction(const ExprNode& node) {
  static constexpr ExprOp kFunctions[] = {ExprOp::kExp,  ExprOp::kLog, ExprOp::kTanh, ExprOp::kSigmoid,
                                          ExprOp::kErfc, ExprOp::kSin, ExprOp::kCos};
  return node.dtype == DType::kFloat && std::ranges::find(kFunctions, node.op) != std::end(kFunctions);
}

void Add(const OperatorCall& call, const std::vector<TensorInfo>& inputs, std::map<ExprOp, double>* counts) {
  try {
    const std::shared_ptr<const OperatorParts> found = FindParts(ShapeQuery(call, inputs));
    for (const RegionPart& part : found->parts) {
      const std::vector<Expr> roots = part.region.Roots();
      for (const ExprNode* node : ExprNodes(roots)) {
        if (IsVectorFunction(*node)) (*counts)[node->op] += static_cast<double>(part.region.NumElements());
      }
    }
  } catch (const Error&) {
  } catch (const ValueUnknown&) {  // before a run
  }
}

}  // namespace

std::map<ExprOp, double> NodeFunctions(const StepGraph& graph, const StepNode& node) {
  std::map<ExprOp, double> counts;
  if (node.by_blobs || !node.RunsOperators() || node.kind == StepNode::Kind::kProduct) return counts;
  if (node.IsOneOperator()) Add(*node.call, graph.InfosOf(node.inputs), &counts);
  for (const RegionCall& call : node.calls()) {
    std::vector<int> values;
    for (const int operand : call.inputs) values.push_back(operand == kNoValue ? kNoValue : node.ValueOf(operand));
    Add(*call.call, graph.InfosOf(values), &counts);
  }
  return counts;
}

}  // namespace stepnet
