#include "stepnet/nets/shape_check.h"

#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

using Known = std::map<std::string, TensorInfo>;

// Those of an operator's outputs; nothing where they are not known before it runs. Throws what the shape rule throws.
std::optional<std::vector<TensorInfo>> OutputsOf(const OperatorCall& op, const Known& known) {
  std::vector<TensorInfo> inputs;
  for (const std::string& input : op.inputs()) {
    const auto found = known.find(input);
    if (found == known.end()) return std::nullopt;
    inputs.push_back(found->second);
  }
  const ShapeRule& rule = op.schema().shapes;
  if (!rule) return std::nullopt;
  try {
    return rule(ShapeQuery(op, inputs));
  } catch (const ValueUnknown&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<NetProblem> CheckShapes(const NetDef& net, Known known) {
  std::vector<NetProblem> problems;
  for (int k = 0; k < net.op_size(); ++k) {
    const OperatorCall op(net.op(k));
    std::optional<std::vector<TensorInfo>> outputs;
    try {
      outputs = OutputsOf(op, known);
    } catch (const Error& error) {
      problems.push_back({.net = net.name(), .op_index = k, .op_text = op.Text(), .message = error.message()});
    }
    for (size_t o = 0; o < op.outputs().size(); ++o) {
      known.erase(op.outputs()[o]);
      if (outputs && o < outputs->size()) known[op.outputs()[o]] = (*outputs)[o];
    }
  }
  return problems;
}

}  // namespace stepnet
