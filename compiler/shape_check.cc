#include "stepnet/compiler/shape_check.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/core/error.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

using Known = std::map<std::string, TensorInfo>;

// Describes those outputs of an operator that are known.
using Outputs = std::vector<std::optional<TensorInfo>>;

std::optional<TensorInfo> OutputOfLoop(const RecurrentSpec& spec, const ForwardPlan& plan, std::int64_t steps,
                                       const std::string& output) {
  const int step_output = spec.StepOutputIndex(output);
  if (step_output >= 0) {
    // [1, B, H] a step is [T, B, H]; any other shape gets a dimension in front.
    const TensorInfo& step = plan.step_outputs[step_output].second;
    const bool has_step = step.shape.rank() > 0 && step.shape[0] == 1;
    return TensorInfo{.dtype = step.dtype,
                      .shape = has_step ? step.shape.With(0, steps) : step.shape.Inserted(0, steps)};
  }
  const int alias = IndexOf(spec.aliases, output, &OffsetAlias::destination);
  const int state = spec.StateIndex(alias < 0 ? output : spec.aliases[alias].source);
  if (state < 0) return {};
  const StateLayout& layout = plan.states[state];
  const std::int64_t offset = alias < 0 ? 0 : spec.aliases[alias].offset;
  const std::int64_t rows = offset < 0 ? -offset : steps + layout.num_initial - offset;
  return TensorInfo{.dtype = layout.dtype, .shape = layout.row.Inserted(0, std::max<std::int64_t>(rows, 0))};
}

// By its plan, unless that depends on values. Throws what making it throws.
Outputs OutputsOfLoop(const OperatorCall& op, const std::vector<TensorInfo>& inputs) {
  const ForwardOperator forward(op);
  if (inputs.empty() || inputs[0].shape.rank() == 0 || !CapturedSizes(forward).empty()) return {};
  const std::shared_ptr<const ForwardPlan> plan = MakeForwardPlan(forward, inputs);
  Outputs outputs;
  for (const std::string& output : op.outputs()) {
    outputs.push_back(OutputOfLoop(*forward.spec, *plan, inputs[0].shape[0], output));
  }
  return outputs;
}

// Throws what the shape rule throws.
Outputs OutputsOf(const OperatorCall& op, const Known& known) {
  std::vector<TensorInfo> inputs;
  for (const std::string& input : op.inputs()) {
    const auto found = known.find(input);
    if (found == known.end()) return {};
    inputs.push_back(found->second);
  }
  try {
    if (op.type() == "RecurrentNetwork") return OutputsOfLoop(op, inputs);
    if (!op.schema().shapes) return {};
    const std::vector<TensorInfo> outputs = op.schema().shapes(ShapeQuery(op, inputs));
    return {outputs.begin(), outputs.end()};
  } catch (const ValueUnknown&) {
    return {};
  }
}

// Names the operator that threw it, or one in its step net.
NetProblem ProblemOf(const Error& error, const NetProblem& place) {
  NetProblem problem = place;
  problem.message = error.message();
  const auto inner = std::ranges::find_if(error.places(), [](const Place& at) { return at.op_index >= 0; });
  if (inner != error.places().end()) {
    problem.net = inner->net;
    problem.op_index = inner->op_index;
    problem.op_text = inner->op_text;
  }
  return problem;
}

}  // namespace

std::vector<NetProblem> CheckShapes(const NetDef& net, Known known) {
  std::vector<NetProblem> problems;
  const auto readers = ReadersOfOutputs(net);
  const auto options = std::make_shared<const RunOptions>();
  for (int k = 0; k < net.op_size(); ++k) {
    const OperatorCall op(net.op(k), options, readers[k]);
    Outputs outputs;
    try {
      outputs = OutputsOf(op, known);
    } catch (const Error& error) {
      problems.push_back(ProblemOf(error, {.net = net.name(), .op_index = k, .op_text = op.Text()}));
    }
    outputs.resize(op.outputs().size());
    for (size_t o = 0; o < outputs.size(); ++o) {
      known.erase(op.outputs()[o]);
      if (outputs[o]) known[op.outputs()[o]] = *outputs[o];
    }
  }
  return problems;
}

}  // namespace stepnet
