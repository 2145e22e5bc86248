#include "stepnet/nets/recurrent_gradient.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/index_of.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Takes back the gradients that the operator's gradient_requests leave out; `inputs` are those whose gradients the
// gradient operator gives, in the order of its outputs.
void ApplyRequests(const RecurrentSpec& spec, const std::vector<int>& inputs, GradientBuilder* g) {
  if (spec.requests.empty()) return;
  if (spec.requests.size() != inputs.size()) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("gradient_requests has ", spec.requests.size(),
                                                    " entries; the gradient operator has ", inputs.size(), " outputs"));
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (spec.requests[k] == GradientRequest::kNone) g->SetDense(inputs[k], "");
  }
}

// Caffe2 gives the operator only the gradients of the outputs that its author listed, and drops those of others without
// a word: of the last state that starts another layer, for one. When the net has computed one since the forward
// operator ran, it is added.
void AddOutputGradients(const NetDef& net, const std::map<std::string, int>& writers, OperatorDef* op) {
  const auto writer = [&](const std::string& blob) {
    const auto found = writers.find(blob);
    return found == writers.end() ? -1 : found->second;
  };
  const int forward = op->input_size() == 0 ? -1 : writer(op->input(op->input_size() - 1));
  if (forward < 0 || net.op(forward).type() != "RecurrentNetwork") return;
  Argument* listed = nullptr;
  for (Argument& argument : *op->mutable_arg()) {
    if (argument.name() == "outputs_with_grads") listed = &argument;
  }
  // Without its list the operator's inputs cannot be told apart.
  if (listed == nullptr || listed->ints_size() == 0) return;
  const auto& outputs = net.op(forward).output();
  std::set<std::string> known;
  for (const std::int64_t o : listed->ints()) {
    if (o >= 0 && o < outputs.size()) known.insert(outputs[static_cast<int>(o)]);
  }
  for (int o = 0; o + 1 < outputs.size(); ++o) {
    const std::string gradient = outputs[o] + "_grad";
    if (writer(gradient) <= forward || !known.insert(outputs[o]).second) continue;
    const int position = listed->ints_size();
    op->add_input(gradient);
    for (int i = op->input_size() - 1; i > position; --i) op->mutable_input()->SwapElements(i, i - 1);
    listed->add_ints(o);
  }
}

const CompletionRegistration complete_gradients([](NetDef* net) {
  std::map<std::string, int> writers;  // blob → the operator that wrote it last
  for (int i = 0; i < net->op_size(); ++i) {
    OperatorDef* op = net->mutable_op(i);
    if (op->type() == "RecurrentNetworkGradient") AddOutputGradients(*net, writers, op);
    for (const std::string& output : op->output()) writers[output] = i;
  }
});

}  // namespace

std::vector<std::pair<int, std::string>> ParamsWithGradients(const OperatorCall& op, const RecurrentSpec& spec) {
  std::vector<std::pair<int, std::string>> params;
  std::set<std::string> taken = {op.inputs()[0]};
  for (size_t k = 0; k < spec.params.size(); ++k) {
    const std::string& input = op.inputs()[spec.params[k]];
    params.emplace_back(spec.params[k], spec.param_grads.empty() ? input + "_grad" : spec.param_grads[k]);
    taken.insert(input);
  }
  for (const RecurrentState& state : spec.states) taken.insert(op.inputs()[state.initial]);
  for (const Link& link : spec.links) taken.insert(link.external);
  std::set<std::string> written;
  if (spec.backward_step_net != nullptr) {
    for (const OperatorDef& def : spec.backward_step_net->op())
      written.insert(def.output().begin(), def.output().end());
  }
  for (const std::string& blob : BlobsReadFirst(*spec.step_net)) {
    const auto found = std::ranges::find(op.inputs(), blob);
    if (found == op.inputs().end() || taken.contains(blob) || !written.contains(blob + "_grad")) continue;
    params.emplace_back(static_cast<int>(found - op.inputs().begin()), blob + "_grad");
  }
  return params;
}

void MakeRecurrentGradient(GradientBuilder& g) {
  const OperatorCall& op = g.op();
  const std::shared_ptr<const RecurrentSpec> owner = RecurrentSpecOf(op);
  const RecurrentSpec& spec = *owner;
  if (!spec.HasBackwardStep()) {
    throw Error(ErrorCode::kInvalidNet,
                "RecurrentNetwork has no backward_step_net, without which there is no gradient: it only runs forward");
  }
  GradientOp gradient{.type = "RecurrentNetworkGradient", .inputs = {}, .outputs = {}};
  std::vector<std::int64_t> with_gradient(spec.outputs_with_grads.begin(), spec.outputs_with_grads.end());
  if (with_gradient.empty()) {
    for (int i = 0; i + 1 < op.num_outputs(); ++i) {
      const bool is_listed_before = IndexOf(op.outputs(), op.outputs()[i]) < i;  // and has the one gradient there
      if (g.HasGO(i) && !is_listed_before) with_gradient.push_back(i);
    }
  }
  for (const std::int64_t output : with_gradient) {
    ExpectGradientTaken(spec, g.O(static_cast<int>(output)));
    gradient.inputs.push_back(g.GO(static_cast<int>(output)));
  }
  gradient.inputs.insert(gradient.inputs.end(), op.inputs().begin(), op.inputs().end());
  gradient.inputs.insert(gradient.inputs.end(), op.outputs().begin(), op.outputs().end());
  const std::vector<std::pair<int, std::string>> params = ParamsWithGradients(op, spec);
  std::vector<int> differentiated = {0};
  ArgumentValue param;
  ArgumentValue param_grads;
  for (const auto& [input, name] : params) {
    differentiated.push_back(input);
    param.ints.push_back(input);
    param_grads.strings.push_back(name);
  }
  for (const RecurrentState& state : spec.states) differentiated.push_back(state.initial);
  for (const int input : differentiated) gradient.outputs.push_back(g.GI(input));
  ApplyRequests(spec, differentiated, &g);
  gradient.arguments["outputs_with_grads"] = {.ints = with_gradient};
  gradient.arguments["param"] = param;
  gradient.arguments["param_grads"] = param_grads;
  g.Add(std::move(gradient));
}

}  // namespace stepnet
