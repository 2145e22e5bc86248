#include "stepnet/nets/requested_gradients.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/needed_operators.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/recurrent_gradient.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Whether some are not requested, by a list that fits.
bool LeavesOut(const RecurrentSpec& spec) {
  return spec.requests.size() == InputsOfGradients(spec).size() &&
         std::ranges::any_of(spec.requests, [](GradientRequest r) { return r == GradientRequest::kNone; });
}

// The links that show what is requested, states and step outputs.
std::vector<Link> RequestedLinks(const OperatorCall& op, const RecurrentSpec& spec) {
  const std::vector<BackwardLinkRole> roles = FindBackwardLinkRoles(op, spec);
  std::vector<Link> links;
  for (size_t i = 0; i < roles.size(); ++i) {
    const bool is_output = roles[i].kind == BackwardLinkRole::Kind::kOutput;
    if (!is_output || IsRequested(op, spec, roles[i].index)) links.push_back(spec.backward_links[i]);
  }
  return links;
}

// The blobs that a backward step gives.
std::set<std::string> RequestedBlobs(const OperatorCall& op, const RecurrentSpec& spec) {
  std::set<std::string> blobs;
  for (const Link& link : spec.backward_links) blobs.insert(spec.Renamed(link.internal));
  for (size_t k = 0; k < spec.params.size(); ++k) {
    if (IsRequested(op, spec, static_cast<int>(k) + 1)) blobs.insert(NameOfParamGradient(op, spec, k));
  }
  return blobs;
}

void SetParams(const std::vector<std::pair<int, std::string>>& params, OperatorDef* op) {
  Argument* const inputs = NewArgument(op, "param");
  for (const auto& [input, gradient] : params) inputs->add_ints(input);
  Argument* const gradients = NewArgument(op, "param_grads");
  for (const auto& [input, gradient] : params) gradients->add_strings(gradient);
}

// Says that the gradient operator need not give the gradients of these inputs.
void LeaveOut(const std::function<bool(const std::string&)>& is_left_out, OperatorDef* op) {
  const OperatorCall call(*op);
  RecurrentSpec spec = *RecurrentSpecOf(call);
  if (!spec.HasBackwardStep()) return;
  const std::vector<std::pair<int, std::string>> params = ParamsWithGradients(call, spec);
  const bool lists_all = params.size() == spec.params.size();
  spec.params.clear();
  for (const auto& [input, gradient] : params) spec.params.push_back(input);
  const std::vector<int> inputs = InputsOfGradients(spec);
  std::vector<GradientRequest>& requests = spec.requests;
  if (requests.empty()) requests.assign(inputs.size(), GradientRequest::kWrite);
  if (requests.size() != inputs.size()) return;  // whoever makes the gradient says so
  bool is_changed = false;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool is_input = inputs[k] >= 0 && inputs[k] < op->input_size();
    const bool is_out = is_input && is_left_out(op->input(inputs[k]));
    if (!is_out || requests[k] != GradientRequest::kWrite) continue;
    requests[k] = GradientRequest::kNone;
    is_changed = true;
  }
  if (!is_changed) return;
  if (!lists_all) SetParams(params, op);
  Argument* const argument = NewArgument(op, "gradient_requests");
  for (const GradientRequest request : requests) argument->add_strings(GradientRequestName(request));
}

}  // namespace

// Outputs of one name are one blob.
bool IsRequested(const OperatorCall& op, const RecurrentSpec& spec, int output) {
  if (spec.requests.empty()) return true;
  const std::vector<int> inputs = InputsOfGradients(spec);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool is_same = IsGradientOperator(op) ? op.outputs()[k] == op.outputs()[output] : inputs[k] == inputs[output];
    if (is_same && spec.requests[k] != GradientRequest::kNone) return true;
  }
  return false;
}

std::shared_ptr<const RecurrentSpec> WithRequestedGradients(const OperatorCall& op,
                                                            std::shared_ptr<const RecurrentSpec> spec) {
  if (!LeavesOut(*spec)) return spec;
  const auto requested = std::make_shared<RecurrentSpec>(*spec);
  requested->backward_links = RequestedLinks(op, *spec);
  if (spec->backward_step_net != nullptr) {
    requested->backward_step_net =
        std::make_shared<const NetDef>(WithNeededOperators(*spec->backward_step_net, RequestedBlobs(op, *requested)));
  }
  return requested;
}

std::set<std::string> BlobsDependingOn(const std::vector<std::string>& inputs, const NetDef& net) {
  std::set<std::string> depending(inputs.begin(), inputs.end());
  const auto depends = [&](const std::string& blob) { return depending.contains(blob); };
  for (const OperatorDef& op : net.op()) {
    const OperatorSchema* schema = FindOperator(op.type());  // whoever checks the net says that there is none
    const bool passes = schema == nullptr || schema->gradient_kind != GradientKind::kStops;
    if (passes && std::ranges::any_of(op.input(), depends)) depending.insert(op.output().begin(), op.output().end());
  }
  return depending;
}

void LeaveOutGradients(const std::vector<std::string>& inputs, NetDef* net) {
  const std::set<std::string> depending = BlobsDependingOn(inputs, *net);
  std::set<std::string> records;  // of runs that have a gradient operator
  for (const OperatorDef& op : net->op()) {
    if (op.type() == "RecurrentNetworkGradient" && !op.input().empty()) records.insert(*op.input().rbegin());
  }
  for (OperatorDef& op : *net->mutable_op()) {
    const bool is_whole = !op.input().empty() && !op.output().empty();
    if (op.type() != "RecurrentNetwork" || !is_whole || records.contains(*op.output().rbegin())) continue;
    LeaveOut([&](const std::string& blob) { return !depending.contains(blob); }, &op);
  }
}

}  // namespace stepnet
